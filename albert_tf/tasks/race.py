"""RACE: questions about an article with four answers each."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertMultipleChoice
from albert_tf.tasks.rows import FeatureRows, features_of, on_host, side_by_side
from albert_tf.tasks.tables.folders import find_tables
from albert_tf.tasks.task import Hyperparameters, Task
from tfrecords.answers.texts import Truncation
from tfrecords.base import files
from tfrecords.base.tables import DataRow, read_json_lines, write_table
from tfrecords.reading.framing import Framer, encode
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
                found = table.read(functools.partial(_examples, level))
                examples += itertools.chain.from_iterable(found)
        return examples or None

    @on_host
    def rows(
        self, examples: Sequence[RaceExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
    ) -> FeatureRows:
        numbers: dict[str, int] = {}
        article = [numbers.setdefault(example.article, len(numbers)) for example in examples]
        contexts, framer = tf.gather(encode(tokenizer, list(numbers)), article), Framer(tokenizer, max_seq_length)
        choices, whole, kept = [], 0, 0
        for place in range(len(LETTERS)):
            answers = encode(tokenizer, [example.answers[place] for example in examples])
            choices.append(framer.choices(contexts, answers))
            whole += (contexts.row_lengths() + answers.row_lengths()).numpy()
            kept += choices[-1].input_ids.row_lengths().numpy() - framer.special_tokens(2)
        truncation, pad_id = Truncation.of(whole, kept), choices[0].pad_id
        features = [features_of(rows) for rows in choices]
        tokens = {
            name: side_by_side([one[name] for one in features], pad_id * (name == "input_ids")) for name in features[0]
        }
        if not training:
            return FeatureRows(tokens, {}, pad_id, truncation=truncation)
        labels = np.array([example.label for example in examples], np.int32)
        return FeatureRows(tokens, {"label": labels}, pad_id, target="label", truncation=truncation)

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
            [one.name, one.level, LETTERS[logits.argmax()], LETTERS[one.label], *map(repr, map(float, logits))]
            for one, logits in zip(examples, outputs)
        ]
        written = [write_table(folder / f"{split}.tsv", header, lines)]
        if split in self.test_splits:
            # The test set comes with its answers.
            files.write_json(folder / f"{split}_scores.json", self.score(examples, rows, outputs))
            written.append(folder / f"{split}_scores.json")
        return written


def _files(folder: Path) -> list[Path]:
    found = find_tables(folder, (".txt",))
    return [found["all"]] if "all" in found else list(found.values())


def _examples(level: str, row: DataRow) -> list[RaceExample]:
    names = ("article", "questions", "options", "answers")
    article, questions, options, answers = (row.values[name] for name in names)
    if not isinstance(article, str) or not article.strip():
        raise row.wrong("article is not a text")
    if not all(isinstance(value, list) and len(value) == len(questions) for value in (questions, options, answers)):
        raise row.wrong("questions, options and answers must be lists, equally long")
    name = str(row.values.get("id", f"{row.path.name}:{row.line}"))
    examples = []
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers)):
        texts = [question, *choices] if isinstance(choices, list) else []
        if len(texts) != 5 or not all(isinstance(text, str) for text in texts) or answer not in tuple(LETTERS):
            raise row.wrong(f"question {number} must be a text with 4 options and the answer A, B, C or D")
        filled = tuple(_put(question, choice) for choice in choices)
        examples.append(RaceExample(f"{name}#{number}", level, article, filled, LETTERS.index(answer)))
    return examples


def _put(question: str, option: str) -> str:
    return question.replace("_", option) if "_" in question else f"{question} {option}"
