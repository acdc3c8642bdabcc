"""Fine-tunes on a task: `python -m albert_tf.run_finetuning --help`."""

import tfrecords.quiet_tensorflow  # noqa: F401, I001  (first of all)

from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training.finetuning import finetune
from tfrecords.script import run_main
from tfrecords.settings import define_flags, read_flags


def main() -> None:
    finetune(read_flags(FinetuningSettings))


def run() -> None:
    define_flags(FinetuningSettings)
    run_main(main)


if __name__ == "__main__":
    run()
