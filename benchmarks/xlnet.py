"""What XLNet's attention costs beside ALBERT's, in exports: `python -m benchmarks.xlnet --help`.

As `benchmarks.modern_block`, all of ALBERT-base's sizes and with one block.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

from benchmarks import modern_block
from benchmarks.modern_block import ModernBlockSettings
from tfrecords.base.script import run_main

OPTIONS = {
    "ALBERT": {},
    'position_type="relative"': {"position_type": "relative"},
    "untie_biases=True": {"position_type": "relative", "untie_biases": True},
    'attention_type="uni"': {"position_type": "relative", "attention_type": "uni"},
    "ALBERT once more": {},
}


def main(settings: ModernBlockSettings) -> None:
    """Prints a table in Markdown."""
    modern_block.main(settings, OPTIONS)


if __name__ == "__main__":
    run_main(main, ModernBlockSettings)
