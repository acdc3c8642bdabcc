"""Answers with several fine-tuned models together: `python -m albert_tf.run_ensemble --help`."""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

from pathlib import Path

from albert_tf.training.ensemble import EnsembleSettings, ensemble
from tfrecords.base.script import run_main
from tfrecords.base.settings import define_flags, read_flags


def main() -> None:
    settings = read_flags(EnsembleSettings)
    ensemble(settings)
    print(f"wrote {Path(settings.output_dir) / 'ensemble.json'}")


def run() -> None:
    define_flags(EnsembleSettings)
    run_main(main)


if __name__ == "__main__":
    run()
