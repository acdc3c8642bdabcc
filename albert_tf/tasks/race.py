"""RACE: questions about an article with four answers each."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertMultipleChoice
from albert_tf.tasks.rows import FeatureRows, RaggedArray, features_of, on_host
from albert_tf.tasks.tables.folders import find_tables
from albert_tf.tasks.tables.reading import DataRow, Table, read_json_lines, write_table
from albert_tf.tasks.task import Hyperparameters, Task
from tfrecords.answers.truncation import Truncation
from tfrecords.base import files
from tfrecords.framing import Framer, encode
from tfrecords.tokenizers.base import Tokenizer

LEVELS = ("middle", "high")
LETTERS = "ABCD"
# The flags of run_race.py; the dropouts are those its README advises for the second release of the models.
DEFAULTS = Hyperparameters(1e-5, 32, 12000, num_warmup_steps=1000)


class RaceExample(NamedTuple):
    """A question about an article; `answers` are the question with each option filled in."""

    name: str
    level: str
    article: str
    answers: tuple[str, ...]
    label: int


@dataclasses.dataclass(frozen=True)
class RaceTask(Task):
    """Multiple choice on RACE's own files, {train,dev,test}/{middle,high}/*.txt, or all.txt in these folders."""

    data_dir: Path

    name, kind = "race", "multiple_choice"
    inputs = ("article", "question", "options")
    labels = None
    main_metric = "accuracy"
    defaults = DEFAULTS

    def read(self, split: str) -> list[RaceExample] | None:
        examples = []
        for level in LEVELS:
            folder = self.data_dir / split / level
            for path in _files(folder):
                table = read_json_lines(path).require(("article", "questions", "options", "answers"))
                examples += [example for row in table.rows for example in _examples(table, row, level)]
        return examples or None

    @on_host
    def rows(
        self, examples: Sequence[RaceExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
    ) -> FeatureRows:
        numbers: dict[str, int] = {}
        article = [numbers.setdefault(example.article, len(numbers)) for example in examples]
        contexts = tf.gather(encode(tokenizer, list(numbers)), np.repeat(article, len(LETTERS)))
        answers = encode(tokenizer, [answer for example in examples for answer in example.answers])
        framer = Framer(tokenizer, max_seq_length)
        rows = framer.choices(contexts, answers)
        whole = (contexts.row_lengths() + answers.row_lengths()).numpy().reshape(-1, len(LETTERS)).sum(axis=1)
        kept = rows.input_ids.row_lengths().numpy() - framer.special_tokens(2)
        truncation = Truncation.of(whole, kept.reshape(-1, len(LETTERS)).sum(axis=1))
        tokens = {
            name: _by_question(array, rows.pad_id if name == "input_ids" else 0)
            for name, array in features_of(rows).items()
        }
        if not training:
            return FeatureRows(tokens, {}, rows.pad_id, truncation=truncation)
        labels = np.array([example.label for example in examples], np.int32)
        return FeatureRows(tokens, {"label": labels}, rows.pad_id, target="label", truncation=truncation)

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        return AlbertMultipleChoice(encoder, dropout)

    def score(
        self, examples: Sequence[RaceExample], rows: FeatureRows, outputs: Sequence[np.ndarray]
    ) -> dict[str, float]:
        right = np.array(outputs).argmax(axis=-1) == [example.label for example in examples]
        levels = np.array([example.level for example in examples])
        scores = {"accuracy": float(right.mean())}
        return scores | {f"{name}_accuracy": float(right[levels == name].mean()) for name in LEVELS if name in levels}

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[RaceExample],
        rows: FeatureRows,
        outputs: Sequence[np.ndarray],
    ) -> list[Path]:
        header = ["id", "level", "prediction", "label", *(f"logit:{letter}" for letter in LETTERS)]
        lines = [
            [
                example.name,
                example.level,
                LETTERS[logits.argmax()],
                LETTERS[example.label],
                *map(repr, map(float, logits)),
            ]
            for example, logits in zip(examples, outputs)
        ]
        written = [write_table(folder / f"{split}.tsv", header, lines)]
        if split in self.test_splits:
            # The test set comes with its answers.
            files.write_json(folder / f"{split}_scores.json", self.score(examples, rows, outputs))
            written.append(folder / f"{split}_scores.json")
        return written


def _by_question(rows: RaggedArray, fill: int) -> RaggedArray:
    lengths = np.diff(rows.splits)
    longest = lengths.reshape(-1, len(LETTERS)).max(axis=1)
    columns = np.repeat(longest, len(LETTERS))
    padded = np.full(columns.sum(), fill, np.int32)
    shift = np.cumsum(columns) - columns - rows.splits[:-1]
    padded[np.arange(len(rows.values)) + np.repeat(shift, lengths)] = rows.values
    return RaggedArray(padded, np.concatenate([[0], np.cumsum(longest)]), (len(LETTERS),))


def _files(folder: Path) -> list[Path]:
    found = find_tables(folder, (".txt",))
    return [found["all"]] if "all" in found else list(found.values())


def _examples(table: Table, row: DataRow, level: str) -> list[RaceExample]:
    article, questions, options, answers = (row.values[name] for name in ("article", "questions", "options", "answers"))
    if not isinstance(article, str) or not article.strip():
        raise table.wrong(row, "article is not a text")
    if not all(isinstance(value, list) for value in (questions, options, answers)):
        raise table.wrong(row, "questions, options and answers must be lists")
    if not len(questions) == len(options) == len(answers):
        raise table.wrong(
            row,
            f"{len(questions)} questions, {len(options)} lists of options, {len(answers)} answers",
            "make them equal",
        )
    name = str(row.values.get("id", f"{table.path.name}:{row.line}"))
    examples = []
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers)):
        if not isinstance(choices, list) or len(choices) != 4 or not all(isinstance(c, str) for c in choices):
            raise table.wrong(row, f"question {number} must have 4 options, texts each")
        if not isinstance(question, str) or answer not in tuple(LETTERS):
            raise table.wrong(row, f"question {number}: answer {answer!r} is none of A, B, C, D")
        examples.append(
            RaceExample(
                f"{name}#{number}", level, article, tuple(_put(question, c) for c in choices), LETTERS.index(answer)
            )
        )
    return examples


def _put(question: str, option: str) -> str:
    return question.replace("_", option) if "_" in question else f"{question} {option}"
