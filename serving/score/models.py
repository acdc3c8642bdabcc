"""A job's model: a SavedModel or LiteRT version in this process, or a model of a server."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving.client import Client, Connection, ServingError
from serving.client.messages import Arrays, Signature, TensorSpec, plain, read_signatures
from serving.client.tasks import constant
from serving.lite.description import FILE as LITERT
from serving.model_server.status import StatusError
from serving.wire.tensors import DT_STRING
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import start_tensorflow

_SAVED_MODEL = "saved_model.pb"


class Refused(Exception):
    """The model refused a batch because some of its rows are invalid."""


@dataclass(frozen=True)
class ModelSource:
    """The model and its options.

    Attributes:
        model: the folder of a SavedModel or LiteRT version, or a model's name at `target`.
        target: HOST:PORT of a gRPC port, or a Connection; "": load the model here.
        version: version of a server's model.
        threads: number for a model loaded here; 0: all cores.
        options: see serving.client.tasks.OPTIONS.
        timeout_s: seconds per batch.
        has_begun: whether a job began with this version of a server's model.
    """

    model: str
    target: str | Connection = ""
    version: int | None = None
    signature: str = "serving_default"
    threads: int = 0
    timeout_s: float = 300.0
    options: tuple[tuple[str, str | bool], ...] = ()
    has_begun: bool = False


Call = Callable[[Arrays, Sequence[str]], Arrays]


class ScoringModel:
    """A model and how to call it.

    `outputs` are (DataType number, rank or, if unknown, -1) by name; `call` computes the named outputs of columns, and
    raises Refused if rows are invalid.

    Attributes:
        wrong_inputs: inputs that are not strings [batch].
    """

    def __init__(
        self,
        inputs: Mapping[str, TensorSpec],
        outputs: Mapping[str, Any],
        call: Callable[[Arrays, Sequence[str]], Arrays],
    ):
        self.inputs, self.outputs, self._call = tuple(sorted(inputs)), outputs, call
        self.wrong_inputs = tuple(name for name, one in inputs.items() if _kind(one) not in _TEXTS)

    def __call__(self, columns: Arrays, outputs: Sequence[str]) -> Arrays:
        return self._call(columns, outputs)


def _kind(spec: TensorSpec) -> tuple[int, int]:
    return spec.dtype, -1 if spec.shape is None else len(spec.shape)


_TEXTS = (DT_STRING, 1), (DT_STRING, -1)


@functools.lru_cache(maxsize=1)
def open_model(source: ModelSource) -> ScoringModel:
    """Opens a model, once per process."""
    model = _served(source) if source.target else _loaded(source)
    return _with_options(model, source) if source.options else model


def version_folder(model: str) -> Path:
    """Returns the folder itself, or the folder of its highest version."""
    versions = sorted((int(path.name), path) for path in Path(model).glob("*") if path.name.isdigit())
    for folder in (Path(model), *(path for _, path in versions[::-1][:1])):
        if any((folder / name).is_file() for name in (_SAVED_MODEL, LITERT)):
            return folder
    raise UserError(f"--model={model} holds no version of a model; export one: python -m serving.export --inputs=text")


def fingerprint(folder: Path) -> dict[str, Any]:
    """Describes a version, to detect its replacement."""
    weights = folder / "variables" / "variables.data-00000-of-00001"
    stamp = [weights.stat().st_size, weights.stat().st_mtime_ns] if weights.exists() else []
    # A LiteRT version's description has the hashes of its files.
    graph = next(folder / name for name in (_SAVED_MODEL, LITERT) if (folder / name).is_file())
    return {"folder": str(folder.resolve()), "sha256": files.sha256(graph), "weights": stamp}


def _loaded(source: ModelSource) -> ScoringModel:
    try:
        version = _open_version(source)
    except StatusError as error:
        raise UserError(f"cannot load '{source.model}': {_first_line(error)}") from error
    signature, names = _signature(source, read_signatures(version.signatures)), version.signatures[source.signature]

    def call(columns: Arrays, outputs: Sequence[str]) -> Arrays:
        feeds = {names.inputs[name].name: values for name, values in columns.items()}
        try:
            answers = version.run(feeds, [names.outputs[name].name for name in outputs])
        except StatusError as error:
            if error.code is grpc.StatusCode.INVALID_ARGUMENT:
                raise Refused(_first_line(error)) from error
            raise
        return dict(zip(outputs, answers, strict=True))

    return _model(signature, call)


def _open_version(source: ModelSource) -> Any:
    # Only what a version needs is imported: TensorFlow, or LiteRT's engine.
    if (Path(source.model) / _SAVED_MODEL).is_file():
        start_tensorflow()
        from serving.model_server.flags import ServerOptions
        from serving.model_server.versions.saved_model import SavedModel

        return SavedModel(source.model, ServerOptions(tensorflow_intra_op_parallelism=source.threads))
    from serving.model_server.versions.litert import LiteVersion

    return LiteVersion(source.model, source.threads)


def _model(signature: Signature, call: Call) -> ScoringModel:
    return ScoringModel(signature.inputs, {name: _kind(one) for name, one in signature.outputs.items()}, call)


def _first_line(error: StatusError) -> str:
    lines = [line for line in error.message.splitlines() if line.strip()] or [error.code.name]
    nodes = [number for number, line in enumerate(lines) if "[[{{node" in line]
    return lines[max(nodes[0] - 1, 0) if nodes else 0].strip()[:300]


def _served(source: ModelSource) -> ScoringModel:
    client = Client(
        source.target, source.model, version=source.version, signature=source.signature, timeout_s=source.timeout_s
    )
    try:
        signature = _signature(source, client.metadata())
    except ServingError as error:
        raise (_gone(error, source) if source.has_begun else error) from None

    def call(columns: Arrays, outputs: Sequence[str]) -> Arrays:
        try:
            return client.predict(columns, outputs=outputs)
        except ServingError as error:
            if error.code is grpc.StatusCode.INVALID_ARGUMENT:
                raise Refused(error.details.split("\n")[0][:300]) from error
            raise _gone(error, source) from None

    return _model(signature, call)


def _gone(error: ServingError, source: ModelSource) -> UserError:
    if error.code is not grpc.StatusCode.NOT_FOUND:
        return error
    return UserError(
        f"{source.target} has no version {source.version} of '{source.model}' any more, with which this job began; "
        "--overwrite begins anew with the version that is there"
    )


def _with_options(model: ScoringModel, source: ModelSource) -> ScoringModel:
    if missing := [name for name, value in source.options if value and name not in model.inputs]:
        raise UserError(f"--{missing[0]} is not known to the model; it takes {', '.join(model.inputs)}")
    options = {name: value for name, value in source.options if name in model.inputs}

    def call(columns: Arrays, outputs: Sequence[str]) -> Arrays:
        rows = len(next(iter(columns.values())))
        return model(columns | {name: constant(value, rows) for name, value in options.items()}, outputs)

    texts = {name: TensorSpec(name, DT_STRING, (-1,)) for name in model.inputs if name not in options}
    found = ScoringModel(texts, model.outputs, call)
    try:
        found({name: np.array([b""], object) for name in found.inputs}, ("lengths",))
    except Refused as refused:
        asked = ", ".join(f"--{name}={value}" for name, value in options.items() if value)
        raise UserError(f"{asked}: {refused}") from refused
    return found


def served_version(source: ModelSource) -> int:
    """Returns the version of the model that answers now."""
    with Client(source.target, source.model, version=source.version) as client:
        return client.served_version()


# Texts whose answers tell a served model from another one under its name and number.
_SAMPLE = (b"the", b"It was a fine film, and they all came back the next day.", b"12 euros?")
_SAMPLE_VALUES = 64
# Servers with another processor, or that batch, answer a little differently.
_RELATIVE, _ABSOLUTE = 1e-2, 1e-3


def sample(model: ScoringModel, outputs: Sequence[str]) -> dict[str, Any]:
    """Returns the shapes and first values of a model's answers to fixed texts."""
    try:
        found = model({name: np.array(_SAMPLE, object) for name in model.inputs}, outputs)
    except Refused as refused:
        return {"refused": str(refused)}
    return {name: [list(array.shape), plain(_first_values(array))] for name, array in sorted(found.items())}


def _first_values(array: np.ndarray) -> np.ndarray:
    values = array.ravel()[:_SAMPLE_VALUES]
    return np.nan_to_num(values) if values.dtype.kind == "f" else values


def is_same(one: Any, other: Any) -> bool:
    """Returns whether two samples may be of one model: numbers need only be close."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, _RELATIVE, _ABSOLUTE))
    return one == other


def other_model(source: ModelSource) -> UserError:
    """Returns the error for a model that answers otherwise than when the job began."""
    return UserError(
        f"{source.target} has another model as version {source.version} of '{source.model}' than the one with which "
        "this job began: their answers differ; --overwrite begins anew with the model that is there"
    )


def _signature(source: ModelSource, signatures: Mapping[str, Signature]) -> Signature:
    """Returns the signature to call; raises UserError if the model lacks it."""
    if source.signature in signatures:
        return signatures[source.signature]
    known = ", ".join(signatures)
    if source.options:
        asked = " and ".join(f"--{name}" for name, value in source.options if value)
        raise UserError(
            f"{asked}: the model has no signature '{source.signature}' ({known}); exports of today whose rows are a"
            " text or a pair have it"
        )
    raise UserError(f"--signature={source.signature} is not the model's; it has {known}")
