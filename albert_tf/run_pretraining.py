"""Pre-trains ALBERT on TFRecords: `python -m albert_tf.run_pretraining --help`."""

from albert_tf.training.pretraining import PretrainingSettings, pretrain
from tfrecords.script import run_main
from tfrecords.settings import define_flags, read_flags


def main() -> None:
    pretrain(read_flags(PretrainingSettings))


def run() -> None:
    define_flags(PretrainingSettings)
    run_main(main)


if __name__ == "__main__":
    run()
