"""Pre-trains ALBERT on TFRecords: `python -m albert_tf.run_pretraining --help`."""

import tfrecords.quiet_tensorflow  # noqa: F401, I001  (first of all)

from albert_tf.training.pretraining import PretrainingSettings, pretrain, try_all_paths
from tfrecords.script import run_main
from tfrecords.settings import define_flags, read_flags


def main() -> None:
    settings = read_flags(PretrainingSettings)
    if settings.dryrun:
        try_all_paths(settings)
    else:
        pretrain(settings)


def run() -> None:
    define_flags(PretrainingSettings)
    run_main(main)


if __name__ == "__main__":
    run()
