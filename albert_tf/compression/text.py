import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.compression.settings import CompressSettings
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.rows import FeatureRows, RaggedArray, chunked, store, text_rows
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.data_file import text_key
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_task import TextTask
from tfrecords.base.errors import UserError
from tfrecords.corpus import read_documents
from tfrecords.examples.randomness import derive
from tfrecords.tokenizers.base import Tokenizer

# Texts that are converted to rows at a time.
_CHUNK = 8192
# The share of a row's words that the loss term "words" masks (BERT's).
_MASKED = 0.15
# Masked words of a row that are compared.
MASKED_WORDS = 8


def task_of(settings: CompressSettings) -> Task | None:
    """Returns the task whose texts are learned from; None without --task."""
    if not settings.task:
        return None
    names = ("task", "data_dir", "output_dir", "text_column", "second_text_column", "label_column")
    given = {name: getattr(settings, name) for name in names}
    return create_task(FinetuningSettings(init_from=settings.model, **given))


def read_texts(
    settings: CompressSettings, patterns: str, task: Task | None, pairs: bool = False
) -> Iterator[tuple[str, ...]]:
    """Yields the texts of each row, from files that match `patterns`; "" means the task's training examples.

    If `pairs`, an example's texts share a row.
    """
    if patterns:
        documents = read_documents(patterns, split_sentences=settings.split_sentences)
        return ((text,) for text in itertools.chain.from_iterable(documents))
    examples = task.stream("train") if isinstance(task, TextTask) else None
    if examples is None:
        raise UserError(
            f"--task={settings.task} in '{settings.data_dir}' has no training texts; give --text='corpus/*.txt'"
        )
    if pairs:
        return (tuple(example.texts) for example in examples if any(example.texts))
    return ((text,) for example in examples for text in example.texts if text)


class Texts(NamedTuple):
    """Training and held-out texts, one or two per row; no row occurs twice."""

    train: list[tuple[str, ...]]
    held_out: list[tuple[str, ...]]


def split_texts(texts: Iterable[tuple[str, ...]], settings: CompressSettings) -> Texts:
    """Splits texts into training and held-out ones; raises UserError if they are too few."""
    key_of = {text: text_key(text) for text in texts}
    different = list(dict.fromkeys(key_of.values()))
    if len(different) < 2 * settings.held_out_rows:
        raise UserError(
            f"{len(different)} different texts are too few to hold out {settings.held_out_rows}; give more --text, or a"
            " lower --held_out_rows"
        )
    order = np.random.default_rng(int(derive(settings.seed, 1))).permutation(len(different))
    held_out = {different[number] for number in order[: settings.held_out_rows]}
    return Texts(
        [text for text, key in key_of.items() if key not in held_out],
        [text for text, key in key_of.items() if key in held_out],
    )


def make_rows(
    texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_seq_length: int, masks: bool = False, seed: int = 0
) -> FeatureRows:
    """Makes a row from each item of `texts` (one text or two); if `masks`, random words are masked."""

    def rows() -> Iterator[FeatureRows]:
        for start in range(0, len(texts), _CHUNK):
            made = text_rows(tokenizer, list(zip(*texts[start : start + _CHUNK])), max_seq_length)
            yield _masked(made, tokenizer, np.arange(start, start + len(made)), seed) if masks else made

    return store(rows())


def count_pieces(texts: Iterable[tuple[str, ...]], tokenizer: Tokenizer) -> np.ndarray:
    """Returns how often each token occurs, int64 [vocab_size]."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for chunk in chunked(itertools.chain.from_iterable(texts), _CHUNK):
        counts += np.bincount(tokenizer.encode_batch(chunk)[0], minlength=tokenizer.vocab_size)
    return counts


def _masked(rows: FeatureRows, tokenizer: Tokenizer, numbers: np.ndarray, seed: int) -> FeatureRows:
    ids, splits = np.array(rows.tokens["input_ids"].values), rows.tokens["input_ids"].splits
    positions = np.zeros((len(rows), MASKED_WORDS), np.int32)
    for row, (start, length, key) in enumerate(zip(splits, rows.lengths, derive(seed, 2, numbers))):
        words = max(int(length) - 2, 1)
        drawn = np.random.default_rng(int(key)).permutation(words)[: max(1, round(_MASKED * words))] + 1
        # A row with fewer masked words repeats some of them.
        positions[row] = np.resize(np.minimum(drawn, length - 1), MASKED_WORDS)
        ids[start + positions[row]] = tokenizer.mask_id
    tokens = dict(rows.tokens) | {"input_ids": RaggedArray(ids, splits)}
    return dataclasses.replace(rows, tokens=tokens, values={"masked_lm_positions": positions})
