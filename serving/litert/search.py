"""The command `albert-tf search` with a LiteRT version as --model."""

from albert_tf.embeddings.index import saved_source
from albert_tf.search import SearchSettings, build_or_search, read_rows
from serving.lite import LiteModel
from tfrecords.base.script import run_main


def main(settings: SearchSettings) -> None:
    """Builds or searches an index."""
    model = settings.model or saved_source(settings.index_dir)
    build_or_search(settings, read_rows(settings), lambda: LiteModel(model))


def run() -> None:
    """Runs the command."""
    run_main(main, SearchSettings)
