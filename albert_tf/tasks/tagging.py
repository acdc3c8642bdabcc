"""Classification of every word of a text."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertTokenClassifier
from albert_tf.tasks.rows import FeatureRows, RaggedArray, features_of, on_host
from albert_tf.tasks.tables.data_file import DataFile
from albert_tf.tasks.tables.values import check_known, tagged_words, words_of
from albert_tf.tasks.task import Hyperparameters
from albert_tf.tasks.text_task import SplitFile, TableTask
from tfrecords.answers.numbers import tag_answers
from tfrecords.answers.texts import Truncation
from tfrecords.base import files
from tfrecords.base.tables import DataRow, Table
from tfrecords.reading.framing import Framer, encode
from tfrecords.tokenizers.base import Tokenizer


class TaggedExample(NamedTuple):
    """A text's words; `tags`: the numbers of their tags, or None."""

    words: list[str]
    tags: list[int] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedRows(FeatureRows):
    """Rows of tagged words; `heads`: the column of each word's first token, without truncated words."""

    heads: RaggedArray


@dataclasses.dataclass(frozen=True)
class TaggingTask(TableTask):
    """Tags words; words and tags are lists, or texts split at white space.

    A word's tag is predicted at its first token (BERT, section 5.3). If all tags are O, B-... or I-..., entities are
    scored as conlleval does.
    """

    data_dir: Path
    text_column: str
    label_column: str
    splits: Mapping[str, SplitFile]
    defaults: Hyperparameters
    labels: tuple[str, ...]
    data_file: DataFile | None = None

    name = kind = "tagging"
    needs_pooler = False

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.text_column,)

    columns = inputs

    @property
    def has_entities(self) -> bool:
        return all(tag == "O" or tag.startswith(("B-", "I-")) for tag in self.labels)

    @property
    def main_metric(self) -> str:
        return "f1" if self.has_entities else "accuracy"

    def _examples(self, table: Table, labelled: bool) -> Iterator[TaggedExample]:
        unlike: list[tuple[int, str]] = []
        yield from table.read(lambda row: self._example(row, labelled, unlike))
        if unlike:
            line, word = unlike[0]
            what = "'%s': %d words are empty or hold white space, such as %r in line %d; a server splits texts there"
            logging.warning(what, table.path, len(unlike), word, line)

    def _example(self, row: DataRow, labelled: bool, unlike: list[tuple[int, str]]) -> TaggedExample:
        tags = None
        if labelled:
            words, names = tagged_words(row, self.text_column, self.label_column)
            check_known(row, "tag", names, self.labels)
            tags = [self.labels.index(name) for name in names]
        else:
            words = words_of(row, self.text_column)
        unlike += [(row.line, word) for word in words if [word] != word.split()]
        return TaggedExample(words, tags)

    def rows(
        self, examples: Sequence[TaggedExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
    ) -> TaggedRows:
        return tagged_rows(examples, tokenizer, max_seq_length, training)

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        return AlbertTokenClassifier(encoder, len(self.labels), dropout, early_exit)

    def score(
        self, examples: Sequence[TaggedExample], rows: TaggedRows, outputs: Sequence[np.ndarray]
    ) -> dict[str, float]:
        predictions = self.predictions(examples, rows, outputs)
        right = [[self.labels[tag] for tag in example.tags] for example in examples]
        equal = [a == b for tags, expected in zip(predictions, right) for a, b in zip(tags, expected)]
        scores = {"accuracy": float(np.mean(equal))}
        if self.has_entities:
            scores["f1"] = entity_f1([[tag or "O" for tag in tags] for tags in predictions], right)
        return scores

    def baseline(self, labelled: FeatureRows) -> tuple[str, np.ndarray]:
        blocks = zip(labelled.tokens["tag"].blocks(), labelled.tokens["tag_weight"].blocks())
        counts = sum(np.bincount(tag[weight > 0], minlength=len(self.labels)) for tag, weight in blocks)
        output = np.broadcast_to(counts == counts.max(), (int(labelled.lengths.max()), len(self.labels)))
        return f"always '{self.labels[counts.argmax()]}'", output

    def predictions(
        self, examples: Sequence[TaggedExample], rows: TaggedRows, outputs: Sequence[np.ndarray]
    ) -> list[list[str | None]]:
        """Returns the tag of each word; see `tag_answers`."""
        found = zip(examples, rows.heads, outputs)
        return [
            [tag for _, tag in tag_answers(example.words, logits[heads], self.labels)]
            for example, heads, logits in found
        ]

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TaggedExample],
        rows: TaggedRows,
        outputs: Sequence[np.ndarray],
    ) -> list[Path]:
        path = folder / f"{split}.jsonl"
        with files.replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            for example, tags in zip(examples, self.predictions(examples, rows, outputs)):
                line = {"words": example.words, "prediction": tags}
                if example.tags is not None:
                    line["label"] = [self.labels[tag] for tag in example.tags]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return [path]


@on_host
def tagged_rows(
    examples: Sequence[TaggedExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
) -> TaggedRows:
    """Makes each example a row: [CLS], the tokens of all words that fit, [SEP]."""
    counts = np.array([len(example.words) for example in examples], np.int64)
    words = encode(tokenizer, [_alone(word, tokenizer.word_prefix) for example in examples for word in example.words])
    pieces = tf.RaggedTensor.from_row_lengths(words, counts, validate=False)
    framer = Framer(tokenizer, max_seq_length)
    rows, columns = framer.words(pieces)
    # A word without a piece becomes an unknown one.
    whole = tf.reduce_sum(tf.maximum(pieces.row_lengths(axis=2), 1), axis=1).numpy()
    kept = rows.input_ids.row_lengths().numpy() - framer.special_tokens(1)
    truncation = Truncation.of(whole, kept)
    fits = columns.values.numpy() < max_seq_length - 1
    first, row = columns.values.numpy()[fits], np.repeat(np.arange(len(examples)), counts)[fits]
    heads = RaggedArray(first, np.searchsorted(row, np.arange(len(examples) + 1)))
    if not training:
        return TaggedRows(features_of(rows), {}, rows.pad_id, heads=heads, truncation=truncation)
    tag, weight = np.zeros((2, rows.input_ids.values.shape[0]), np.int32)
    place = rows.input_ids.row_starts().numpy()[row] + first
    tag[place] = np.array(list(itertools.chain.from_iterable(example.tags for example in examples)))[fits]
    weight[place] = 1
    features = features_of(rows, tag=tag, tag_weight=weight)
    return TaggedRows(features, {}, rows.pad_id, target="tag", weight="tag_weight", heads=heads, truncation=truncation)


def _alone(word: str, prefix: str) -> str:
    # As transformers' add_prefix_space: a word that brings its blank gets no second one, an empty one stays empty.
    return prefix + word if word and not word.startswith(prefix) else word


def entities(tags: Iterable[str]) -> set[tuple[str, int, int]]:
    """Returns each entity's (type, first word, last word); as in conlleval, an I- tag may begin an entity."""
    complete, start, kind = set(), 0, ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, this = tag.partition("-")
        if kind and (prefix != "I" or this != kind):
            complete.add((kind, start, index - 1))
            kind = ""
        if not kind and prefix != "O":
            start, kind = index, this
    return complete


def entity_f1(predictions: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]) -> float:
    """Returns the F1 of entities; an entity is right if its type and both ends are."""
    pairs = [(entities(ours), entities(theirs)) for ours, theirs in zip(predictions, labels, strict=True)]
    right = sum(len(ours & theirs) for ours, theirs in pairs)
    total = sum(len(ours) + len(theirs) for ours, theirs in pairs)
    return 2 * right / total if total else 0.0
