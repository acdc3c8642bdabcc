"""The vocabulary and the examples of a table, built where they are missing."""

import os
from pathlib import Path

from experiments.tables import Recipe
from tfrecords import train_tokenizer
from tfrecords.base.errors import UserError
from tfrecords.builder import build
from tfrecords.manifest import MANIFEST
from tfrecords.tokenizers.loading import load_tokenizer


def examples(recipe: Recipe, corpus: str, folder: Path) -> Path:
    """Returns the folder of a recipe's examples, training and held-out ones, by documents.

    Recipes that ask for the same examples share them. What a killed build left is completed.

    Args:
        recipe: of which the vocabulary and the data count.
        corpus: globs of text files by commas; "" will do where the examples are built.
        folder: of all vocabularies and examples.

    Raises:
        UserError: without a corpus there is nothing to build of, or it is not that of what is built.
    """
    target = folder / f"examples-{recipe.part_key('vocabulary', 'data')}"
    if not corpus:
        if not (target / MANIFEST).is_file():
            raise UserError("give --corpus='text/*.jsonl.gz' (or .txt): the examples are not built yet")
        return target
    tokenizer = load_tokenizer(str(_vocabulary(recipe, corpus, folder)))
    build(corpus, target, tokenizer, recipe.build_settings(), len(os.sched_getaffinity(0)), overwrite=False)
    return target


def _vocabulary(recipe: Recipe, corpus: str, folder: Path) -> Path:
    prefix = folder / f"vocabulary-{recipe.part_key('vocabulary')}"
    model = prefix.with_name(f"{prefix.name}.model")
    if not model.is_file():
        settings = train_tokenizer.TokenizerSettings(
            input=corpus, output_prefix=str(prefix), hard_vocab_limit=False, **recipe.vocabulary
        )
        train_tokenizer.main(settings)
    return model
