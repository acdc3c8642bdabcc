"""A LiteRT version as a model that answers texts."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.lite import description
from serving.lite.description import Trial, version_folder
from serving.lite.interpreters import Interpreters
from serving.lite.rows import Row, span_outputs
from serving.lite.texts import LiteTokenizer, RowMaker, TextRows, WindowRows
from tfrecords.answers.numbers import class_answers, label_answers, span_answers, tag_answers, word_answers
from tfrecords.answers.spans import find_answers
from tfrecords.answers.texts import (
    TextModel,
    check_asked,
    check_pairs,
    columns_of,
    no_texts,
    no_tokenizer,
    no_vectors,
    prompt_of,
    questions_of,
    refuse_seconds,
    words_of,
)
from tfrecords.base.columns import strings
from tfrecords.base.errors import UserError

# Numbers below it are log-probabilities of what is impossible.
_IMPOSSIBLE = -1e29


class _Question(NamedTuple):
    context: str


class LiteModel(TextModel):
    """A model that `serving.export --engine=litert` wrote, with the answers of what `albert_tf.load` returns.

    It needs no TensorFlow. Each row is computed alone, on all cores, or several rows on a core each; its answer has the
    same bits whatever the other rows are. Thread-safe, also after a fork.

    Args:
        folder: a version's folder, or the one that holds numbered folders of versions, of which the newest counts.
        cores: CPU cores to use; 0: all that this process may use.

    Raises:
        UserError: there is no version, it is damaged or of a later format, or its trial texts have other answers here.

    Attributes:
        description: what the version's litert.json says.
        interpreters: they answer rows of ids.
        rows: makes rows from texts; None in an export for ids.
    """

    def __init__(self, folder: str | os.PathLike, cores: int = 0):
        self.source, self.folder = str(folder), version_folder(folder)
        self.description, contents = description.read(self.folder)
        self._answer, rules = self.description.answer, self.description.tokenizer
        self.task = {"prompts": self._answer.prompts, "similarity_fn_name": self._answer.similarity}
        self.interpreters = Interpreters(contents[description.MODEL_FILE], cores)
        self.rows = None if rules is None else RowMaker(self.description, LiteTokenizer(rules, contents[rules.file]))
        self._check_trials()

    @property
    def dimensions(self) -> int:
        if not self._answer.dimensions:
            raise no_vectors(self.description.model)
        return self._answer.dimensions

    def identity(self) -> str:
        """Returns a SHA-256 of all that determines vectors; it differs from that of the model in another arithmetic."""
        about = [self.description.files, self.task, self._answer.default_prompt, self.rows and self.rows.max_seq_length]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def answers(self, texts: Any, seconds: Any, batch_size: int) -> Any:
        kind = self._answer.kind
        if kind in ("classes", "labels", "numbers"):
            check_pairs(self._answer.inputs, seconds)
            rows = self._maker.texts(*columns_of(texts, seconds))
            name = "value" if kind == "numbers" else "logits"
            found = np.array([one[name] for one in self._run(rows, batch_size)], np.float32)
            if kind == "numbers":
                return found.tolist()
            labels = self._answer.labels
            return (
                class_answers(found, labels)
                if kind == "classes"
                else label_answers(found, labels, self._answer.threshold)
            )
        if kind == "spans":
            return self._spans(questions_of(texts, seconds), batch_size)
        if kind not in ("vectors", "tags", "words"):
            raise no_texts(self.description.model)
        refuse_seconds(seconds)
        if kind == "vectors":
            return self.vectors(texts, batch_size, False, "")
        if kind == "words":
            rows = self._maker.masked(strings(texts, "texts"))
            found = self._run(rows, batch_size, ["logits"])
            return [word_answers(one["logits"], self._maker.tokenizer) for one in found]
        words = words_of(texts)
        rows = self._maker.words([one[: self._maker.max_seq_length] for one in words])
        found = zip(words, rows.heads, self._run(rows, batch_size))
        return [tag_answers(of_text, one["logits"][heads], self._answer.labels) for of_text, heads, one in found]

    def vectors(self, texts: Any, batch_size: int, show_progress: bool, prompt_name: str) -> np.ndarray:
        dimensions = self.dimensions
        prompt = prompt_of(self.task, prompt_name) if prompt_name else self._answer.default_prompt
        rows = self._maker.texts([prompt + text for text in strings(texts, "texts")])
        found = self._run(rows, batch_size, ["embedding"], show_progress)
        return np.array([one["embedding"] for one in found], np.float32).reshape(-1, dimensions)

    def _spans(self, pairs: list[tuple[str, str]], batch_size: int) -> list[dict]:
        if not pairs:
            return []
        rows = self._maker.windows(pairs)
        outputs = [span_outputs(self._answer, *one) for one in zip(rows.rows, self._run(rows, batch_size))]
        found = find_answers([_Question(context) for _, context in pairs], rows, outputs)
        return span_answers(found, self._answer.null_threshold)

    @property
    def _maker(self) -> RowMaker:
        if self.rows is None:
            raise no_tokenizer()
        return self.rows

    def _run(
        self,
        rows: TextRows | WindowRows,
        batch_size: int,
        outputs: Collection[str] = (),
        show_progress: bool = False,
    ) -> list[Row]:
        check_asked(batch_size, rows.truncation, self._maker.max_seq_length)
        if not show_progress:
            return self.run(rows.rows, outputs)
        # What commands need would delay the first answer of a process.
        from tfrecords.base.script import progress_bar

        with progress_bar(total=len(rows.rows), unit="text") as bar:
            return self.run(rows.rows, outputs, bar.update)

    def run(
        self, rows: Sequence[Row], outputs: Collection[str] = (), advance: Callable[[], Any] = lambda: None
    ) -> list[Row]:
        """Calls `interpreters.run` with those of the rows' inputs that the file has."""
        # Vectors need no positions of masked words.
        given = [{"positions": np.zeros(1, np.int32)} | row for row in rows]
        names = self.description.inputs
        return self.interpreters.run([{name: row[name] for name in names} for row in given], outputs, advance)

    def _check_trials(self) -> None:
        found = list[Row]()
        for trial in self.description.trials:
            inputs = {name: value[0] for name, value in self.description.trial_inputs(trial).items()}
            if trial.texts:
                self._check_ids(trial, inputs)
            try:
                found += self.interpreters.run([inputs])
            except (RuntimeError, ValueError) as error:
                raise UserError(f"'{self.folder}' cannot be asked: {error}; export the model again") from error
        numbers = {
            name: [np.asarray(one[name], np.float64).ravel()[: description.TRIAL_NUMBERS] for one in found]
            for name in self.description.outputs
        }
        expected = {name: [np.array(trial.outputs[name]) for trial in self.description.trials] for name in numbers}
        # Of two starts that are almost as good, either may be first; ends belong to starts.
        starts = [all_.pop("start_index", []) for all_ in (numbers, expected)]
        if not all(map(np.array_equal, *starts)):
            del numbers["end_log_probs"]
        for name, values in numbers.items():
            if not _agree(values, expected[name], self.description.tolerance):
                raise UserError(
                    f"this CPU or this version of ai-edge-litert answers otherwise than the one that wrote "
                    f"'{self.folder}' ({name} of its trial texts); export the model here"
                )

    def _check_ids(self, trial: Trial, inputs: Row) -> None:
        kind, texts = self._answer.kind, [[text] for text in trial.texts]
        maker = self._maker
        if kind == "spans":
            row = maker.windows([trial.texts]).rows[0]
        elif kind == "words":
            row = maker.masked(trial.texts).rows[0]
        elif kind == "tags":
            row = maker.words([trial.texts[0].split()]).rows[0]
        elif kind == "choices":
            row = maker.choices(*texts).rows[0]
        else:
            row = maker.texts([self._answer.default_prompt + trial.texts[0]], *texts[1:]).rows[0]
        if not np.array_equal(row["input_ids"], inputs["input_ids"]):
            raise UserError(
                f"the tokenizer of '{self.folder}' splits {trial.texts[0][:60]!r} otherwise with this version of its "
                "library than when it was written; export the model here"
            )


def _agree(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> bool:
    if [one.shape for one in found] != [one.shape for one in expected]:
        return False
    found_numbers, numbers = np.concatenate(found), np.concatenate(expected)
    possible = numbers > _IMPOSSIBLE
    if not np.array_equal(possible, found_numbers > _IMPOSSIBLE):
        return False
    largest = np.abs(numbers[possible]).max(initial=0)
    return bool((np.abs(found_numbers - numbers)[possible] <= tolerance * largest).all())
