"""The command `albert-tf search` with a LiteRT version as --model."""

from albert_tf.index_files import saved_source
from albert_tf.search import SearchSettings, read_texts
from albert_tf.searching import build_or_search
from serving.lite import LiteModel
from tfrecords.base.script import run_main


def main(settings: SearchSettings) -> None:
    """Builds or searches an index."""
    texts = read_texts(settings)
    build_or_search(settings, LiteModel(settings.model or saved_source(settings.index_dir)), texts)


def run() -> None:
    """Runs the command."""
    run_main(main, SearchSettings)
