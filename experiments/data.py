"""The vocabulary and the examples of a table, built where they are missing."""

import os
from pathlib import Path

from experiments.tables import Recipe
from tfrecords import train_tokenizer
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.builder import build
from tfrecords.corpus import find_files
from tfrecords.manifest import MANIFEST
from tfrecords.sections import size_of
from tfrecords.tokenizers.loading import load_tokenizer

_CORPUS = "corpus.json"


def examples(recipe: Recipe, corpus: str, folder: Path) -> Path:
    """Returns the folder of a recipe's examples, training and held-out ones, by documents.

    Recipes that ask for the same examples share them. What a killed build left is completed.

    Args:
        recipe: of which the vocabulary and the data count.
        corpus: globs of text files by commas; "" will do where the examples are built.
        folder: of all vocabularies and examples.

    Raises:
        UserError: without a corpus there is nothing to build of, or it is not that of what is built in the folder.
    """
    target = folder / f"examples-{recipe.part_key('vocabulary', 'data')}"
    if not corpus:
        if not (target / MANIFEST).is_file():
            raise UserError("give --corpus='text/*.jsonl.gz' (or .txt): the examples are not built yet")
        return target
    _check_corpus(corpus, folder / _CORPUS)
    tokenizer = load_tokenizer(str(_vocabulary(recipe, corpus, folder)))
    build(corpus, target, tokenizer, recipe.build_settings(), len(os.sched_getaffinity(0)), overwrite=False)
    return target


def _check_corpus(corpus: str, path: Path) -> None:
    """Notes the names and sizes of the corpus's files; once they are noted, refuses files of other sizes.

    What is in them the build looks at, which refuses other text for examples that are there.
    """
    found = [[Path(one).name, size_of(one)] for one in find_files(corpus)]
    if not path.is_file():  # A new folder, or one of before it was noted.
        files.write_json(path, found)
    noted = files.read_json(path)
    if sorted(size for _, size in noted) != sorted(size for _, size in found):
        raise UserError(
            f"--corpus={corpus} is not what '{path.parent}' was built of ({_said(noted)}, not {_said(found)}); "
            "give that, or another --output_dir"
        )


def _said(noted: list) -> str:
    names = ", ".join(name for name, _ in noted[:3])
    return f"{names}{', ...' * (len(noted) > 3)} of {sum(size for _, size in noted):,} bytes"


def _vocabulary(recipe: Recipe, corpus: str, folder: Path) -> Path:
    prefix = folder / f"vocabulary-{recipe.part_key('vocabulary')}"
    is_bpe = recipe.vocabulary.get("kind") == "bpe"
    model = prefix.with_name(f"{prefix.name}.{'json' if is_bpe else 'model'}")
    if not model.is_file():
        given = {"input": corpus, "output_prefix": str(prefix)}
        settings = train_tokenizer.TokenizerSettings(**{"hard_vocab_limit": False} | recipe.vocabulary | given)
        train_tokenizer.main(settings)
    return model
