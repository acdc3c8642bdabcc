"""Builds requests and reads answers, without the network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import Message

from serving.client.errors import UnreadableAnswer
from serving.wire.protos import (
    VERSION_STATES,
    GetModelMetadataResponse,
    GetModelStatusResponse,
    PredictRequest,
    PredictResponse,
    SignatureDefMap,
)
from serving.wire.tensors import DT_STRING, Value, fill_tensor, numpy_type, read_tensor, type_name
from tfrecords.base.columns import items
from tfrecords.base.errors import UserError

Arrays = dict[str, np.ndarray]
# Of short texts many would fit into a call; deploy/batching.config lets servers that batch take so many.
MAX_ROWS = 256
# Names of equal inputs in different exporters' models; the first name is this project's.
_LENGTHS = ("lengths",)
_MASKS = ("input_mask", "attention_mask", "input_word_mask")
_SEGMENTS = ("segment_ids", "token_type_ids", "input_type_ids")
_IDS = ("input_ids", "input_word_ids")
# Span predictors' values at positions without an answer, to pad with: a log-probability of 0 would be certainty.
_FILLS = dict.fromkeys(("start_log_probs", "end_log_probs", "scores"), -1e30)


@dataclass(frozen=True)
class TensorSpec:
    """One input or output. `shape`: None for an unknown rank, -1 for a variable size."""

    name: str
    dtype: int
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join("any" if size < 0 else str(size) for size in self.shape)
        return f"{self.name}: {type_name(self.dtype)} [{sizes}]"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model's signature, by name."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    method: str

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, specs.values())) for specs in (self.inputs, self.outputs))
        return f"({inputs}) -> ({outputs})"


@dataclass(frozen=True)
class VersionStatus:
    """One version of a model. `state`: START, LOADING, AVAILABLE, UNLOADING or END; `error`: the failure, or ''."""

    version: int
    state: str
    error: str


def _specs(infos: dict) -> dict[str, TensorSpec]:
    specs = {}
    for name in sorted(infos):
        shape = infos[name].tensor_shape
        sizes = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
        specs[name] = TensorSpec(name, infos[name].dtype, sizes)
    return specs


def read_metadata(response: GetModelMetadataResponse) -> tuple[int | None, dict[str, Signature]]:
    """Returns the version that answered (None: it does not tell), and its callable signatures by name."""
    definitions = SignatureDefMap.FromString(response.metadata["signature_def"].value).signature_def
    spec = response.model_spec
    return spec.version.value if spec.HasField("version") else None, read_signatures(definitions)


def read_signatures(definitions: Mapping[str, Any]) -> dict[str, Signature]:
    """Returns callable signatures by name, from SignatureDefs."""
    return {
        name: Signature(_specs(one.inputs), _specs(one.outputs), one.method_name)
        for name, one in sorted(definitions.items())
        # TF 2 exports list their initialiser with the signatures.
        if not name.startswith("__")
    }


def read_status(response: GetModelStatusResponse) -> list[VersionStatus]:
    """Returns the versions, newest first."""
    return [
        VersionStatus(entry.version, VERSION_STATES.get(entry.state, "UNKNOWN"), entry.status.error_message)
        for entry in response.model_version_status
    ]


def fill_model_spec(spec: Message, model: str, version: int | None = None, label: str | None = None) -> None:
    """Writes a model's name and version or label to `spec`; raises UserError if given both."""
    if version is not None and label is not None:
        raise UserError(f"both version {version} and label '{label}' are given; choose one")
    spec.name = model
    if version is not None:
        spec.version.value = version
    if label is not None:
        spec.version_label = label


def predict_request(
    inputs: Mapping[str, Value],
    model: str,
    version: int | None = None,
    label: str | None = None,
    signature: str = "serving_default",
    outputs: Sequence[str] = (),
) -> PredictRequest:
    """Returns a request with `inputs` by name; no `outputs` means all."""
    request = PredictRequest()
    fill_model_spec(request.model_spec, model, version, label)
    request.model_spec.signature_name = signature
    request.output_filter.extend(outputs)
    for name, value in inputs.items():
        fill_tensor(request.inputs[name], value)
    return request


def count_rows(arrays: Arrays) -> int | None:
    """Returns the inputs' common number of rows; None if they differ."""
    sizes = {array.shape[0] if array.ndim else None for array in arrays.values()}
    return sizes.pop() if len(sizes) == 1 else None


def read_prediction(response: PredictResponse) -> Arrays:
    """Returns the answer's arrays by output name; raises UnreadableAnswer if an output is no tensor."""
    arrays = {}
    for name in sorted(response.outputs):
        try:
            arrays[name] = read_tensor(response.outputs[name])
        except (ValueError, OverflowError) as error:
            raise UnreadableAnswer(f"the server's output '{name}' cannot be read: {error}") from error
    return arrays


def plain(value: Any) -> Any:
    """Converts an output, or a row of it, to JSON values: lists, numbers and strings."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist()) if value.dtype.kind in "OS" else value.tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _find(signature: Signature, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in signature.inputs), None)


def ids_input(signature: Signature) -> str | None:
    """Returns the name of the token-id input, or None."""
    return _find(signature, _IDS)


def text_input(signature: Signature) -> str | None:
    """Returns the input's name if a signature takes only one input, of strings; else None."""
    names = list(signature.inputs)
    return names[0] if len(names) == 1 and signature.inputs[names[0]].dtype == DT_STRING else None


def id_rows(rows: Iterable[Iterable[int]], name: str) -> list[Any]:
    """Converts rows of ids to a list of rows with lengths; raises UserError for what holds no rows."""
    return [
        row if isinstance(row, (list, tuple, np.ndarray)) else items(row, f"{name}[{number}]", "numbers")
        for number, row in enumerate(items(rows, name, "rows of numbers"))
    ]


def ids_inputs(
    signature: Signature,
    rows: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None = None,
) -> Arrays:
    """Converts rows of token ids to the signature's inputs: padded ids [batch, length], lengths, mask, segments.

    Raises UserError if the signature has other inputs or a row is too long.
    """
    name = ids_input(signature)
    if name is None:
        raise UserError(f"the model does not take token ids; it takes {signature}")
    lengths = np.array([len(row) for row in rows])
    width = _width(signature, name, lengths)
    by_role = {
        name: lambda: _pad(rows, width),
        _find(signature, _LENGTHS): lambda: lengths,
        _find(signature, _MASKS): lambda: np.arange(width) < lengths[:, None],
        _find(signature, _SEGMENTS): lambda: _pad(segments or [[0] * n for n in lengths], width),
    }
    unknown = sorted(set(signature.inputs) - set(by_role))
    if unknown:
        raise UserError(f"do not know what to feed input '{unknown[0]}'; call predict() with {signature}")
    return {name: by_role[name]().astype(numpy_type(spec.dtype)) for name, spec in signature.inputs.items()}


def _width(signature: Signature, name: str, lengths: np.ndarray) -> int:
    longest = int(lengths.max(initial=1))
    shape = signature.inputs[name].shape
    fixed = shape[1] if shape and len(shape) == 2 else -1
    if fixed > 0 and longest > fixed:
        raise UserError(f"a row of {longest} tokens does not fit the model's fixed length of {fixed}; cut it")
    return fixed if fixed > 0 else longest


def _pad(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    padded = np.zeros((len(rows), width), dtype=np.int64)
    for padded_row, row in zip(padded, rows, strict=True):
        padded_row[: len(row)] = row
    return padded


def text_inputs(signature: Signature, texts: Sequence[str]) -> Arrays:
    """Returns texts as the signature's only input; raises UserError if it takes something else."""
    name = text_input(signature)
    if name is None:
        raise UserError(f"the model does not take text; it takes {signature}")
    return {name: np.array([text.encode() for text in texts], dtype=object)}


def join_batches(parts: Sequence[Arrays], rows: Sequence[np.ndarray]) -> Arrays:
    """Joins the answers to `batches` in the original order; pads shorter rows with zeros, b'' or values in `_FILLS`."""
    order = np.concatenate(rows)
    joined = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        for array, numbers in zip(arrays, rows, strict=True):
            if array.ndim == 0 or len(array) != len(numbers):
                raise UserError(
                    f"output '{name}' of shape {array.shape} has not one row for each of {len(numbers)} rows"
                )
        shape = (len(order), *np.max([array.shape[1:] for array in arrays], axis=0, initial=0).astype(int))
        dtype = arrays[0].dtype
        number = _FILLS.get(name, 0) if dtype.kind == "f" else 0
        joined[name] = np.full(shape, b"" if dtype.hasobject else number, dtype=dtype)
        for array, numbers in zip(arrays, rows, strict=True):
            joined[name][(numbers, *(slice(size) for size in array.shape[1:]))] = array  # type: ignore[index]
    return joined
