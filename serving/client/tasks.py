"""Finds the tasks of a model by its signatures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from serving.client.messages import Arrays, Signature
from serving.wire.tensors import DT_STRING
from tfrecords.base.columns import items, strings
from tfrecords.base.errors import UserError

DEFAULT = "serving_default"
# The signature that answers like DEFAULT and takes options as inputs (for other signatures, this is a suffix of the
# name); and the neutral value of each option.
WITH_OPTIONS = "with_options"
OPTIONS: dict[str, str | bool] = {"prompt_name": "", "truncate_left": False}
_EMBEDDINGS = ("embedding", "embeddings", "sentence_embedding")
_PAIR = ("first", "second")
# A regressor's raw output: the first of these that exists, since `value` may be the result of an activation function.
_NUMBERS = ("logit", "value")
# The approximate number of UTF-8 bytes per token. SPECIAL_TOKENS are each row's [CLS] and [SEP].
BYTES_A_TOKEN = 4.0
# Outputs of exports that count the tokens of each row: all of its texts', those that were cut off, and the unknown ones
# among those that the model read.
TEXT_TOKENS, TRUNCATED_TOKENS, UNKNOWN_TOKENS = COUNTS = ("text_tokens", "truncated_tokens", "unknown_tokens")
SPECIAL_TOKENS = 2


@dataclass(frozen=True)
class RowsTask:
    """How to call a model's task on rows of texts.

    Attributes:
        inputs: names, in the order of a row's texts.
        outputs: names.
        numbers: name and value of constant inputs.
        counts: outputs that count tokens.
        options: names of the supported OPTIONS.
        option_counts: the same of the signature with options.
    """

    signature: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: tuple[tuple[str, float | str | bool], ...] = ()
    counts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    option_counts: tuple[str, ...] = ()

    def asked_with(self, **options: str | bool) -> "RowsTask":
        """Returns the task with these OPTIONS and the output `lengths`; unchanged if every option is off.

        Raises UserError for unsupported options.
        """
        wanted = {name: value for name, value in options.items() if value}
        if unknown := sorted(wanted.keys() - set(self.options)):
            raise UserError(f"{unknown[0]} is none of the options of this model ({', '.join(self.options) or 'none'})")
        if not wanted:
            return self
        constants = tuple((name, options.get(name, OPTIONS[name])) for name in self.options)
        outputs = tuple(dict.fromkeys((*self.outputs, "lengths")))
        signature, counts = _with_options(self.signature), self.option_counts
        return replace(self, signature=signature, outputs=outputs, numbers=constants, counts=counts)

    def columns(self, rows: Sequence[Sequence[bytes]]) -> Arrays:
        return columns_of(self.inputs, rows) | {name: constant(value, len(rows)) for name, value in self.numbers}


def columns_of(names: Sequence[str], rows: Sequence[Sequence[bytes]]) -> Arrays:
    """Converts rows of texts to one array for each input."""
    columns = {name: np.empty(len(rows), object) for name in names}
    for number, name in enumerate(names):
        columns[name][:] = [row[number] for row in rows]
    return columns


def constant(value: float | str | bool, rows: int) -> np.ndarray:
    """Returns `value` once for each row, as float32, bool or UTF-8."""
    if isinstance(value, str):
        return np.full(rows, np.array([value.encode()], object))
    return np.full(rows, value, bool if isinstance(value, bool) else np.float32)


Signatures = Mapping[str, Signature]
Finder = Callable[[Signatures], RowsTask | None]


def _embedding(signatures: Signatures) -> RowsTask | None:
    inputs, outputs = _read(signatures, DEFAULT)
    name = next((name for name in _EMBEDDINGS if name in outputs), None)
    return RowsTask(DEFAULT, inputs, (name,)) if name and len(inputs) == 1 else None


def _classes(signatures: Signatures) -> RowsTask | None:
    inputs, outputs = _read(signatures, DEFAULT)
    wanted = _head(outputs)
    return RowsTask(DEFAULT, inputs, wanted) if wanted and (len(inputs) == 1 or inputs == _PAIR) else None


# By a regressor, or a classifier of two classes.
def _pair_scores(signatures: Signatures) -> RowsTask | None:
    for name in (DEFAULT, "pair"):
        inputs, outputs = _read(signatures, name)
        if inputs != _PAIR:
            continue
        if number := next((output for output in _NUMBERS if output in outputs), None):
            return RowsTask(name, inputs, (number,))
        if "label" in outputs and "logits" in outputs and (outputs["logits"].shape or (0,))[-1] in (-1, 0, 2):
            return RowsTask(name, inputs, ("logits",))
    return None


def _giving(name: str, width: int | None, *outputs: str) -> Finder:
    """Returns a function that finds the signature `name` if it has these outputs and `width` texts (None: any)."""

    def find(signatures: Signatures) -> RowsTask | None:
        inputs, found = _read(signatures, name)
        fits = len(inputs) == width if width else bool(inputs)
        return RowsTask(name, inputs, outputs) if fits and set(outputs) <= found.keys() else None

    return find


def _read(signatures: Signatures, name: str) -> tuple[tuple[str, ...], dict]:
    signature = signatures.get(name)
    if signature is None:
        return (), {}
    texts = signature.inputs
    if any(spec.dtype != DT_STRING or len(spec.shape or ()) > 1 for spec in texts.values()):
        return (), {}
    return tuple(sorted(texts)), signature.outputs


def _head(outputs: Mapping) -> tuple[str, ...]:
    if {"classes", "label", "logits", "probabilities"} <= outputs.keys():
        # For models with several labels per text, also the labels.
        return tuple(name for name in ("classes", "label", "labels", "logits", "probabilities") if name in outputs)
    return ("value",) if "value" in outputs else ()


# All tasks, and the functions that find them.
FINDERS: Mapping[str, Finder] = {
    "embed": _embedding,
    "embed_sparse": _giving("sparse", 1, "ids", "terms", "weights"),
    "classify": _classes,
    "rerank": _pair_scores,
    # Rows are (context, question).
    "answer": _giving(
        DEFAULT, 2, "answer", "end", "no_answer_score", "score", "start",
        "answers", "ends", "probabilities", "scores", "starts",
    ),
    "tag": _giving(DEFAULT, 1, "ends", "labels", "probabilities", "starts", "words"),
    "fill_mask": _giving("fill_mask", 1, "ids", "pieces", "probabilities", "texts"),
    "tokenize": _giving("tokenize", None, "input_ids", "lengths", "pieces"),
    "embed_all": _giving("tokens", 1, "lengths", "sequence_output"),
}  # fmt: skip


def counts_in(outputs: Iterable[str]) -> tuple[str, ...]:
    """Returns the outputs that count tokens (COUNTS); none if `truncated_tokens` is not among them.

    >>> counts_in(["logits", "text_tokens", "truncated_tokens"]), counts_in(["logits", "text_tokens"])
    (('text_tokens', 'truncated_tokens'), ())
    """
    found = tuple(name for name in COUNTS if name in outputs)
    return found if {TEXT_TOKENS, TRUNCATED_TOKENS} <= set(found) else ()


def find_tasks(signatures: Signatures) -> dict[str, RowsTask]:
    """Returns a model's supported tasks by their names in FINDERS."""
    found = {name: find(signatures) for name, find in FINDERS.items()}
    return {name: _completed(task, signatures) for name, task in found.items() if task is not None}


def _completed(task: RowsTask, signatures: Signatures) -> RowsTask:
    task = replace(task, counts=counts_in(signatures[task.signature].outputs))
    if (other := signatures.get(_with_options(task.signature))) is None:
        return task
    options = tuple(sorted(OPTIONS.keys() & other.inputs))
    return replace(task, options=options, option_counts=counts_in(other.outputs))


def _with_options(signature: str) -> str:
    return WITH_OPTIONS if signature == DEFAULT else f"{signature}_{WITH_OPTIONS}"


def raw_scores(answer: Arrays) -> np.ndarray:
    """Returns scores [rows]: a regressor's values, or a two-class classifier's log-odds of class 1; else UserError."""
    if number := next((output for output in _NUMBERS if output in answer), None):
        return answer[number]
    logits = answer["logits"]
    if logits.ndim != 2 or logits.shape[1] != 2:
        raise UserError(f"the model has {logits.shape[-1]} classes; a score of pairs takes a regressor, or 2 classes")
    return logits[:, 1] - logits[:, 0]


def relevance(raw: np.ndarray) -> np.ndarray:
    """Maps raw scores to (0, 1) by the logistic function."""
    return np.exp(-np.logaddexp(0.0, -raw.astype(np.float64))).astype(np.float32)


def estimated_tokens(row: Sequence[bytes]) -> int:
    """Estimates the tokens of a row of texts."""
    return SPECIAL_TOKENS + round(sum(map(len, row)) / BYTES_A_TOKEN)


def encode_rows(rows: Iterable, width: int) -> list[tuple[bytes, ...]]:
    """Converts texts, or tuples of `width` texts, to tuples of UTF-8."""
    encoded = []
    for number, row in enumerate(items(rows, "texts")):
        texts = strings(row if isinstance(row, (tuple, list)) else [row], f"texts[{number}]")
        encoded.append(tuple(text.encode() for text in texts))
        if len(texts) != width:
            wanted = "one text" if width == 1 else f"{width} texts"
            raise UserError(f"a row has {len(texts)} texts; the model takes {wanted} a row")
    return encoded
