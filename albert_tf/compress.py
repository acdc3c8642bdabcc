"""Compresses a model, and trains the small model to reproduce the answers of the large one.

The command narrows the word embeddings, shares blocks between layers, and removes unused pieces of the vocabulary. The
small model then learns by distillation on text; run_finetuning trains it on, with --init_from.

python -m albert_tf.compress --model=sentence-transformers/all-MiniLM-L6-v2 --text='corpus/*.txt' --output_dir=small
python -m albert_tf.compress --model=sst2 --task=sst2 --data_dir=glue/SST-2 --output_dir=sst2_start
"""

from albert_tf.compression.settings import CompressSettings
from albert_tf.loading.hub import check_model
from tfrecords.base.machine.cpu import train_by_onednn
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.corpus import find_files


def main(settings: CompressSettings) -> None:
    """Compresses a model."""
    check_model(settings.model, settings.allow_pickle)
    if settings.text:
        find_files(settings.text)
    start_tensorflow()
    from albert_tf.compression.run import run_and_say

    run_and_say(settings)


def run() -> None:
    """Runs the command."""
    train_by_onednn()
    run_main(main, CompressSettings)


if __name__ == "__main__":
    run()
