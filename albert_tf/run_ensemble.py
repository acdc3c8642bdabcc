"""Answers with several fine-tuned models together: `python -m albert_tf.run_ensemble --help`."""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

from pathlib import Path

from albert_tf.training.ensemble import EnsembleSettings, ensemble
from tfrecords.base.script import run_main


def main(settings: EnsembleSettings) -> None:
    ensemble(settings)
    print(f"wrote {Path(settings.output_dir) / 'ensemble.json'}")


def run() -> None:
    run_main(main, EnsembleSettings)


if __name__ == "__main__":
    run()
