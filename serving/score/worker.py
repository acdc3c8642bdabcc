"""Scores the rows of a piece in batches of rows of similar length."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.client.messages import MAX_ROWS, Arrays, plain
from serving.client.tasks import COUNTS, TRUNCATED_TOKENS, columns_of, counts_in, estimated_tokens
from serving.score.models import ModelSource, Refused, ScoringModel, is_same, open_model, other_model, sample
from serving.score.rows import InputRow, Piece, read
from serving.score.tables import FORMATS, JsonLines, Parquet
from tfrecords.base import files
from tfrecords.base.columns import batches
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.parts import Parts

# The default outputs that a table should hold; other models: all.
_WANTED = (
    ("label", "labels", "probabilities"),
    ("label", "probabilities"),
    ("value",),
    ("embedding",),
    ("answer", "start", "end", "score", "no_answer_score"),
    ("words", "labels", "starts", "ends"),
)
# While the model runs, the next batch is made ready and the last one's answer is read.
_IN_FLIGHT = 2


@dataclass(frozen=True)
class ScoringWorker:
    """Scores pieces of files; opens the model once per process.

    Attributes:
        fields: JSON fields, one for each of the model's inputs; (): named like the inputs.
        outputs: outputs to write; (): the task's defaults.
        keep: fields of JSON rows to copy.
        format: "jsonl" or "parquet".
        max_batch_tokens: estimated tokens per batch.
        parts: of the job's folder.
    """

    source: ModelSource
    fields: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    format: str = "jsonl"
    max_batch_tokens: int = 2048
    parts: Parts | None = None

    def table(self, outputs: dict[str, Any]) -> JsonLines | Parquet:
        """Returns the writer of the tables; raises UserError if its package is not installed."""
        return FORMATS[self.format](outputs, self.keep)

    def describe(self) -> dict[str, Any]:
        """Returns the model's inputs and the requested outputs with their types."""
        model = open_model(self.source)
        unknown = [name for name in self.outputs if name not in model.outputs]
        refuse({
            f"the input '{', '.join(model.wrong_inputs)}' of the model is no text; export it with --inputs=text":
                model.wrong_inputs,
            f"--fields={','.join(self.fields)} must name a field for each of {', '.join(model.inputs)}":
                self.fields and len(self.fields) != len(model.inputs),
            f"--outputs={','.join(unknown)} is none of the model's; it gives {', '.join(model.outputs)}": unknown,
        })  # fmt: skip
        others = tuple(name for name in model.outputs if name not in COUNTS)
        wanted = self.outputs or next((w for w in _WANTED if set(w) <= model.outputs.keys()), others)
        taken = ",".join(name for name in (*wanted, "error") if name in self.keep)
        refuse({f"--keep={taken} has the name of a column of answers; rename it in the rows": taken})
        outputs = {name: model.outputs[name] for name in wanted}
        self.table(outputs)
        of_model = sample(model, sorted(outputs)) if self.source.target else {}
        return {"inputs": model.inputs, "outputs": outputs, "sample": of_model}

    def score(
        self, part: str, piece: Piece, inputs: tuple[str, ...], outputs: dict[str, Any], begun: Any = None
    ) -> int:
        """Writes a piece's answers and, last, its report with counts and bad rows; returns the number of rows.

        Raises UserError if a served model's sample is no longer `begun`: then the answers may be of two models.
        """
        rows = list(read(piece, self.fields or inputs, self.keep))
        answers: list[dict[str, Any]] = [{} for _ in rows]
        places = [place for place, row in enumerate(rows) if not row.error]
        sizes = [estimated_tokens(rows[place].texts) for place in places]
        numbers = batches(sizes, self.max_batch_tokens, MAX_ROWS) if places else []

        # Here, not in the threads: each of them would load its own.
        model = open_model(self.source)
        counted = counts_in(model.outputs)
        asked = tuple(dict.fromkeys((*outputs, *counted)))

        def ask(batch: list[int]) -> None:
            _ask(model, rows, answers, batch, inputs, asked)

        pool = ThreadPoolExecutor(_IN_FLIGHT)
        try:
            for _ in pool.map(ask, [[places[i] for i in batch] for batch in numbers]):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
        if begun and not is_same(begun, sample(model, sorted(outputs))):
            raise other_model(self.source)
        told = _counts(answers, counted) if counted else {}
        answers = [{name: answer[name] for name in outputs if name in answer} for answer in answers]
        table = self.table(outputs)
        lines = [{"error": row.error} if row.error else {**row.kept, **answers[n]} for n, row in enumerate(rows)]
        bad = [(n, row.error, row.line.decode(errors="replace")) for n, row in enumerate(rows) if row.error]
        path = self.parts.file(f"{part}{table.suffix}")
        with files.replacing(path) as temporary:
            table.write(temporary, lines)
        # Not durable: the answers are on disk, and if a power cut destroys the report, the piece is scored again.
        report = {"rows": len(rows), "bad_rows": len(bad), **told, "bad": bad}
        self.parts.finish(part, report, [path], durable=False)
        return len(rows)


def _counts(answers: list[dict[str, Any]], counted: tuple[str, ...]) -> dict[str, int]:
    answered = [answer for answer in answers if answer]
    tokens = {name: sum(answer[name] for answer in answered) for name in counted}
    return {"truncated_rows": sum(answer[TRUNCATED_TOKENS] > 0 for answer in answered)} | tokens


def _ask(
    model: ScoringModel,
    rows: list[InputRow],
    answers: list,
    batch: list[int],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    try:
        found = model(columns_of(inputs, [rows[place].texts for place in batch]), outputs)
    except Refused as refused:
        # One bad row must not fail the others.
        if len(batch) == 1:
            rows[batch[0]].refuse(f"the model refused it: {refused}")
            return
        half = len(batch) // 2
        for part in (batch[:half], batch[half:]):
            _ask(model, rows, answers, part, inputs, outputs)
        return
    for number, (place, answer) in enumerate(zip(batch, _by_row(found, len(batch)), strict=True)):
        if wrong := next((name for name, values in found.items() if not _is_finite(values[number])), None):
            rows[place].refuse(f"the model gave NaN or infinity ({wrong})")
        else:
            answers[place] = answer


def _is_finite(values: Any) -> bool:
    values = np.asarray(values)
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _by_row(found: Arrays, count: int) -> list[dict[str, Any]]:
    for name, values in found.items():
        if values.ndim == 0 or len(values) != count:
            raise UserError(f"the output '{name}' has not one row for each row of the input; leave it out of --outputs")
    columns = {name: plain(values) for name, values in found.items()}
    filled = {name: values.shape[1] for name, values in found.items() if values.dtype == object and values.ndim == 2}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not filled:
        return rows
    # Strings are filled up with "", and outputs of the same shape to the same length.
    beside = [name for name, values in found.items() if values.ndim > 1 and values.shape[1] in filled.values()]
    for row in rows:
        size = max(_size_without_tail(row[name]) for name in filled)
        row.update({name: row[name][:size] for name in beside})
    return rows


def _size_without_tail(values: list[str]) -> int:
    return max((number for number, value in enumerate(values, 1) if value), default=0)
