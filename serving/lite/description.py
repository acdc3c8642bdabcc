"""The description of a LiteRT version: `litert.json` in its folder.

A version's folder holds `model.tflite`, which maps token ids to numbers; the tokenizer's files; and this description.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
import types
import typing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tfrecords.base import files
from tfrecords.base.errors import UserError

FILE = "litert.json"
MODEL_FILE = "model.tflite"
FORMAT_VERSION = 1
# Bytes of a version's file; a flatbuffer has no more.
MOST_BYTES = 2**31
# Of each output, so many numbers stand in a trial.
TRIAL_NUMBERS = 256
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or output of the file: NumPy's name of its type, and its shape, -1 for any size."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self):
        _require(self.dtype in ("int32", "bool", "float32"), f"dtype {self.dtype!r}")
        _require(1 <= len(self.shape) <= 3 and all(size >= -1 for size in self.shape), f"shape {list(self.shape)}")


@dataclasses.dataclass(frozen=True)
class TokenizerRules:
    """How texts become ids, and ids a row. Attributes are as in `tfrecords.tokenizers.base.Tokenizer`.

    A row is `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, with `separators_between` [SEP] between two texts;
    its segment ids are 0, and `second_segment_id` behind these [SEP].

    Attributes:
        file: a SentencePiece model (kind "sentencepiece"), or a tokenizer.json that matches in texts only the added
            tokens that stand for text.
        table_rows: a text that has an id from here on is refused; the model's table ends there.
        parts, no_blank_before, last_blank: see `tfrecords.tokenizers.by_library`.
    """

    file: str
    kind: str
    lowers_first: bool
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    unk_id: int
    separators_between: int
    second_segment_id: int
    odd_to_longer: bool
    mask_keeps_blank: bool
    word_prefix: str
    vocab_size: int
    table_rows: int
    parts: dict[str, tuple[int, ...]]
    no_blank_before: str
    last_blank: str

    def __post_init__(self):
        _require(self.kind in ("sentencepiece", "wordpiece", "bpe"), f"tokenizer kind {self.kind!r}")
        _require(1 <= self.separators_between <= 2, f"separators_between {self.separators_between}")
        _require(0 <= self.second_segment_id <= 1, f"second_segment_id {self.second_segment_id}")
        for number in (self.cls_id, self.sep_id, self.mask_id, self.pad_id, self.unk_id):
            _require(0 <= number < self.vocab_size, f"special id {number}")
        _require(self.table_rows > 0, f"table_rows {self.table_rows}")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the file's outputs are, and how they become answers.

    Attributes:
        kind: one of KINDS. By kind, the file's inputs besides input_ids, lengths and, if pairs are possible,
            segment_ids; and its outputs:
            classes: logits [rows, classes]. labels (several at a time): the same.
            numbers: value [rows]; logit [rows] before an activation function.
            vectors: embedding [rows, dimensions]; pooled_output [rows, hidden] of an encoder with a pooler.
            tags: logits [rows, length, classes].
            spans: input allowed bool [rows, length] (possible answers and [CLS]). Plain: logits [rows, length, 2] of
                starts and ends; `allowed` is no input. Joint: also input may_start bool [rows, length]; outputs
                start_log_probs [rows, length], start_index int32 [rows, starts], end_log_probs [rows, starts, length]
                and no_answer_score [rows].
            choices: logits [rows], a row for each choice.
            words: input positions int32 [rows, positions]; outputs logits [rows, positions, vocabulary], embedding,
                perhaps pooled_output, and with a pair head order_logits [rows, 2]. Ids that the tokenizer lacks are no
                words.
        labels: names of classes or tags.
        inputs: fine-tuning's names of its texts, one or two; None if it is unknown whether texts come in pairs.
        threshold: above this probability a text has a label, one for all or for each (labels).
        dimensions: of vectors (vectors, words).
        prompts, default_prompt, similarity: as in `albert_tf.load`; default_prompt is the text itself.
        joint, start_top, end_top, max_answer_length, null_threshold: of the span search (spans).
    """

    # Each with the file's first output.
    KINDS: ClassVar[dict[str, str]] = {
        "classes": "logits", "labels": "logits", "numbers": "value", "vectors": "embedding", "tags": "logits",
        "spans": "logits", "choices": "logits", "words": "logits",
    }  # fmt: skip

    kind: str
    labels: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    threshold: tuple[float, ...] = (0.5,)
    dimensions: int = 0
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str = ""
    similarity: str = "cosine"
    joint: bool = False
    start_top: int = 0
    end_top: int = 0
    max_answer_length: int = 0
    null_threshold: float | None = None

    def __post_init__(self):
        _require(self.kind in self.KINDS, f"kind {self.kind!r}")
        _require(bool(self.labels) == (self.kind in ("classes", "labels", "tags")), f"labels of {self.kind}")
        _require(len(self.threshold) in (1, len(self.labels)), f"{len(self.threshold)} thresholds")
        _require(self.inputs is None or len(self.inputs) in (1, 2), f"inputs {self.inputs}")
        _require((self.dimensions > 0) == (self.kind in ("vectors", "words")), f"dimensions {self.dimensions}")
        spans = (self.start_top, self.end_top, self.max_answer_length)
        _require(all((number > 0) == (self.kind == "spans") for number in spans), f"spans {spans}")

    def check(self, inputs: "dict[str, TensorSpec]", outputs: "dict[str, TensorSpec]") -> None:
        """Raises ValueError unless the file's inputs and outputs are those of this kind of answer."""
        more = {"positions"} if self.kind == "words" else {"allowed", "may_start"} if self.joint else set()
        expected = {"input_ids", "lengths"} | more
        _require(inputs.keys() in (expected, expected | {"segment_ids"}), f"the inputs {', '.join(inputs)}")
        first = "start_log_probs" if self.joint else self.KINDS[self.kind]
        _require(first in outputs, f"the outputs {', '.join(outputs)}")
        size = len(self.labels) or (self.dimensions if self.kind == "vectors" else 0)
        _require(
            not size or outputs[first].shape[-1] == size, f"{outputs[first].shape[-1]} numbers for {size} {self.kind}"
        )

    @property
    def takes_pairs(self) -> bool | None:
        """Whether texts come in pairs; None if that is unknown."""
        if self.kind in ("spans", "choices"):
            return True
        if self.kind in ("vectors", "tags", "words"):
            return False
        return None if self.inputs is None else len(self.inputs) == 2


@dataclasses.dataclass(frozen=True)
class Limits:
    """Lengths in tokens, and numbers of answers; as the flags of `serving.export`."""

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    top_k: int
    num_choices: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _require(getattr(self, field.name) >= 1, f"{field.name} {getattr(self, field.name)}")


@dataclasses.dataclass(frozen=True)
class Trial:
    """A row that was asked when the version was written.

    Attributes:
        texts: one text or two, as `LiteModel.predict` takes them, so without the default prompt; of choices the
            context, and question and choice in one. None in an export without a tokenizer.
        inputs: values of each input of the file for this row; of bool inputs 0 and 1.
        outputs: the first TRIAL_NUMBERS numbers of each output.
    """

    texts: tuple[str, ...]
    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class Description:
    """A version of a LiteRT model.

    Attributes:
        model: the Keras model's class.
        created: the time, in ISO format.
        compute: "float32", or "int8": weights in 8 bits, activations quantized in each call.
        tolerance: how far another CPU's answers to `trials` may be from `outputs`, relative to the largest of an
            output's numbers in all trials together.
        check: largest differences from the Keras model by output.
        parameters: number of the Keras model's weights.
        files: SHA-256 by name of every other file.
        tokenizer: None in an export for ids.
    """

    model: str
    created: str
    compute: str
    tolerance: float
    check: dict[str, float]
    parameters: int
    files: dict[str, str]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    answer: Answer
    limits: Limits
    tokenizer: TokenizerRules | None
    trials: tuple[Trial, ...]

    def __post_init__(self):
        _require(self.compute in ("float32", "int8"), f"compute {self.compute!r}")
        _require(0 < self.tolerance < 1, f"tolerance {self.tolerance}")
        for name, sha256 in self.files.items():
            _require(bool(_FILE_NAME.fullmatch(name)) and name != FILE, f"a file {name!r}")
            _require(bool(_SHA256.fullmatch(sha256)), f"a SHA-256 {sha256!r}")
        for name in (MODEL_FILE, *([self.tokenizer.file] if self.tokenizer else [])):
            _require(name in self.files, f"no SHA-256 of {name!r}")
        self.answer.check(self.inputs, self.outputs)
        _require(bool(self.trials), "no trials")
        for trial in self.trials:
            _require(trial.inputs.keys() == self.inputs.keys(), f"a trial with the inputs {', '.join(trial.inputs)}")
            _require(
                trial.outputs.keys() == self.outputs.keys(), f"a trial with the outputs {', '.join(trial.outputs)}"
            )
            _require(len(trial.texts) <= 2 and bool(trial.texts) == bool(self.tokenizer), "a trial's texts")
            count = len(trial.inputs["input_ids"])
            _require(1 <= count <= self.limits.max_seq_length, f"a trial of {count} ids")
            _require(trial.inputs["lengths"] == (count,), "a trial of another length than its ids")
            for name, values in trial.inputs.items():
                _require(name in ("lengths", "positions") or len(values) == count, f"a trial of {len(values)} {name}")
                _require(all(-(2**31) <= value < 2**31 for value in values), f"a trial of unlikely {name}")

    def trial_inputs(self, trial: Trial) -> dict[str, np.ndarray]:
        """Returns a trial's inputs as the file takes them, of one row."""
        arrays = {name: np.array(values, self.inputs[name].dtype) for name, values in trial.inputs.items()}
        return {name: array if name == "lengths" else array[None] for name, array in arrays.items()}


def write(folder: Path, description: Description) -> None:
    """Writes the description into its folder."""
    values = {"format_version": FORMAT_VERSION} | dataclasses.asdict(description)
    files.write_json(folder / FILE, {"sha256": digest(values)} | values)


def read(folder: Path) -> tuple[Description, dict[str, bytes]]:
    """Returns the description of a version's folder, and the content of every file that it names.

    Raises UserError for a missing, damaged or unknown description, and for a file whose SHA-256 is another.
    """
    if not (path := folder / FILE).exists():
        raise UserError(f"no litert.json in '{folder}', so it is no LiteRT version; export one with --engine=litert")
    values = files.read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"'{path}' is damaged: it holds no JSON object; export the model again")
    files.check_format(f"'{path}'", values, FORMAT_VERSION)
    try:
        written = values.pop("sha256", None)
        _require(written == digest(values), f"a SHA-256 {written!r} that is not its own")
        _require(values.pop("format_version", None) is not None, "no format_version")
        description = _parsed(Description, values, "")
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is damaged: it has {error}; export the model again") from error
    return description, {name: _content(folder / name, sha256) for name, sha256 in description.files.items()}


def _content(path: Path, sha256: str) -> bytes:
    try:
        content = files.read_limited(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}; export the model again") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError(f"'{path}' is damaged: its SHA-256 is not the one in {FILE}; export the model again")
    return content


def digest(values: dict[str, Any]) -> str:
    """Returns the SHA-256 of a description's values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise ValueError(message)


def _parsed(kind: Any, value: Any, where: str) -> Any:
    """Converts a JSON value to the type of a field, exactly."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _parsed(of[0], value, where)
    if dataclasses.is_dataclass(kind):
        _require(isinstance(value, dict), f"no JSON object in {where or 'it'}")
        fields = {field.name: field.type for field in dataclasses.fields(kind)}
        _require(value.keys() == fields.keys(), f"other keys in {where or 'it'} than {', '.join(fields)}")
        return kind(**{name: _parsed(of_field, value[name], f"{where}/{name}") for name, of_field in fields.items()})
    if origin is tuple:
        _require(isinstance(value, list), f"no list in {where}")
        return tuple(_parsed(of[0], one, where) for one in value)
    if origin is dict:
        _require(isinstance(value, dict), f"no JSON object in {where}")
        return {name: _parsed(of[1], one, f"{where}/{name}") for name, one in value.items()}
    _require(type(value) is kind, f"no {kind.__name__} in {where}")
    _require(kind is not float or math.isfinite(value), f"{value} in {where}")
    return value


def version_folder(folder: str | os.PathLike) -> Path:
    """Returns a version's folder: itself, or the newest of the numbered folders in it that hold a LiteRT version."""
    folder = Path(folder)
    if (folder / FILE).exists() or not folder.is_dir():
        return folder
    versions = [path for path in folder.iterdir() if path.name.isdecimal() and (path / FILE).exists()]
    return max(versions, key=lambda path: int(path.name), default=folder)


def holds_version(folder: str | os.PathLike) -> bool:
    """Returns whether a folder is a LiteRT version, or holds some."""
    return (version_folder(folder) / FILE).exists()
