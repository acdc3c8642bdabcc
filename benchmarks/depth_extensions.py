"""What extensions over depth cost beside plain ALBERT: `python -m benchmarks.depth_extensions --help`.

As `benchmarks.modern_block`. Their gates are half open.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

from benchmarks import modern_block
from benchmarks.modern_block import ModernBlockSettings
from tfrecords.base.script import run_main

OPTIONS = {
    "ALBERT": {},
    'step_signal="learned"': {"step_signal": "learned"},
    "hyper_connections=2": {"hyper_connections": 2, "gate_init": 0.5},
    "hyper_connections=4": {"hyper_connections": 4, "gate_init": 0.5},
    "ALBERT once more": {},
}


def main(settings: ModernBlockSettings) -> None:
    """Prints a table in Markdown."""
    modern_block.main(settings, OPTIONS)


if __name__ == "__main__":
    run_main(main, ModernBlockSettings)
