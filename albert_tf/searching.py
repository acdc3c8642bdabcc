import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from albert_tf.index import build_index, open_index
from tfrecords.answers.texts import TextModel
from tfrecords.base.script import say_next

if TYPE_CHECKING:
    from albert_tf.search import SearchSettings


def build_or_search(settings: "SearchSettings", loaded: TextModel, texts: Sequence[str]) -> None:
    """Builds an index of `texts` or, without a text file, opens a saved one; prints the hits for each query."""
    if settings.text_file:
        index = build_index(loaded, texts, settings.index_dir, settings.vectors, settings.batch_size)
        print(f"wrote {settings.index_dir}: {len(index.texts):,} texts, {settings.vectors} vectors")
        if not settings.query:
            say_next(f'python -m albert_tf.search --index_dir={shlex.quote(settings.index_dir)} --query="..."')
    else:
        index = open_index(settings.index_dir, loaded)
    for query, hits in zip(settings.query, index.search(settings.query, settings.top, settings.exact)):
        if len(settings.query) > 1:
            print(query)
        for hit in hits:
            print(f"{hit.score:.3f}  {hit.text}")
