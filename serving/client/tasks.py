"""What a model does with texts, read from its signatures: vectors, scores of pairs, classes, tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.client.messages import Arrays, Signature
from serving.wire.tensors import DT_STRING
from tfrecords.base.errors import UserError

DEFAULT = "serving_default"
_EMBEDDINGS = ("embedding", "embeddings", "sentence_embedding")
_PAIR = ("first", "second")
# Characters of UTF-8 that a piece of a vocabulary stands for, about; and [CLS] and [SEP] around each row.
BYTES_A_TOKEN = 4.0
SPECIAL_TOKENS = 2


@dataclass(frozen=True)
class Task:
    """One thing that a model does with rows of texts.

    Attributes:
        signature: The name of the signature to call.
        inputs: The names of its string inputs, in the order of a row's texts.
        outputs: The names of the outputs that are wanted.
    """

    signature: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def columns(self, rows: Sequence[Sequence[bytes]]) -> Arrays:
        """Returns rows of texts as the inputs of the signature, each [rows]."""
        columns = {name: np.empty(len(rows), object) for name in self.inputs}
        for number, name in enumerate(self.inputs):
            columns[name][:] = [row[number] for row in rows]
        return columns


def embedding_task(signatures: Mapping[str, Signature]) -> Task | None:
    """Finds the vector of a text."""
    inputs, outputs = _read(signatures, DEFAULT)
    name = next((name for name in _EMBEDDINGS if name in outputs), None)
    return Task(DEFAULT, inputs, (name,)) if name and len(inputs) == 1 else None


def classes_task(signatures: Mapping[str, Signature]) -> Task | None:
    """Finds the class of a text, or of a pair: `label`, `logits` and `probabilities`, or a regressor's `value`."""
    inputs, outputs = _read(signatures, DEFAULT)
    wanted = _head(outputs)
    return Task(DEFAULT, inputs, wanted) if wanted and (len(inputs) == 1 or inputs == _PAIR) else None


def scores_task(signatures: Mapping[str, Signature]) -> Task | None:
    """Finds how well two texts go together: a regressor or a classifier of two classes that takes pairs."""
    for name in (DEFAULT, "pair"):
        inputs, outputs = _read(signatures, name)
        if inputs != _PAIR:
            continue
        if "value" in outputs:
            return Task(name, inputs, ("value",))
        if "label" in outputs and "logits" in outputs and (outputs["logits"].shape or (0,))[-1] in (-1, 0, 2):
            return Task(name, inputs, ("logits",))
    return None


def tokens_task(signatures: Mapping[str, Signature]) -> Task | None:
    """Finds the pieces and ids that texts become."""
    inputs, outputs = _read(signatures, "tokenize")
    wanted = ("input_ids", "lengths", "pieces")
    return Task("tokenize", inputs, wanted) if inputs and set(wanted) <= outputs.keys() else None


def _read(signatures: Mapping[str, Signature], name: str) -> tuple[tuple[str, ...], dict]:
    """The names of a signature's inputs, none where one is no [batch] of strings, and its outputs."""
    signature = signatures.get(name)
    if signature is None or any(s.dtype != DT_STRING or len(s.shape or ()) > 1 for s in signature.inputs.values()):
        return (), {}
    return tuple(sorted(signature.inputs)), signature.outputs


def _head(outputs: Mapping) -> tuple[str, ...]:
    if {"label", "logits", "probabilities"} <= outputs.keys():
        return ("label", "logits", "probabilities")
    return ("value",) if "value" in outputs else ()


def vectors_of(task: Task, answer: Arrays) -> np.ndarray:
    """Reads the answer of an embedding task: float32 [rows, size]."""
    return answer[task.outputs[0]]


def raw_scores(answer: Arrays) -> np.ndarray:
    """Reads the answer of a scores task: a regressor's values, or log-odds of class 1 against class 0, [rows].

    Raises:
        UserError: for a classifier that has not two classes.
    """
    if "value" in answer:
        return answer["value"]
    logits = answer["logits"]
    if logits.ndim != 2 or logits.shape[1] != 2:
        raise UserError(f"the model has {logits.shape[-1]} classes; a score of pairs takes a regressor, or 2 classes")
    return logits[:, 1] - logits[:, 0]


def relevance(raw: np.ndarray) -> np.ndarray:
    """Maps raw scores to (0, 1) by the logistic function; of two classes that is the probability of class 1."""
    return np.exp(-np.logaddexp(0.0, -raw.astype(np.float64))).astype(np.float32)


def estimated_tokens(row: Sequence[bytes], bytes_a_token: float = BYTES_A_TOKEN) -> int:
    """Guesses how many tokens a row of texts becomes."""
    return SPECIAL_TOKENS + round(sum(map(len, row)) / bytes_a_token)


def check_texts(texts: Sequence) -> Sequence:
    """Returns the texts; raises UserError for one string, whose letters would each be answered."""
    if isinstance(texts, (str, bytes)):
        raise UserError("texts must be a list of strings; of one text give [text]")
    return texts


def encode_rows(rows: Sequence, width: int) -> list[tuple[bytes, ...]]:
    """Returns texts, or tuples of `width` texts, as tuples of UTF-8.

    Raises:
        UserError: for one string in place of a list, and for rows of another width.
    """
    encoded = [tuple(map(_encode, row if isinstance(row, (tuple, list)) else (row,))) for row in check_texts(rows)]
    for row in encoded:
        if len(row) != width:
            wanted = "one text" if width == 1 else f"{width} texts"
            raise UserError(f"a row has {len(row)} texts; the model takes {wanted} a row")
    return encoded


def _encode(text: str | bytes) -> bytes:
    if not isinstance(text, (str, bytes)):
        raise UserError(f"{text!r} is no text; give str")
    return text.encode() if isinstance(text, str) else text
