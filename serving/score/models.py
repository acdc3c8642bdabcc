"""A job's model: a SavedModel or LiteRT version in this process, or a model of a server."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving.client import Client, Connection, ServingError
from serving.client.messages import Arrays, plain
from serving.client.tasks import constant
from serving.lite.description import FILE as LITERT
from serving.wire.tensors import DT_STRING, type_number
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


Specs = Mapping[str, tuple[int, int]]


class ScoringModel:
    """A model and how to call it.

    `inputs` and `outputs` are (DataType number, rank or, if unknown, -1) by name; `call` computes the named outputs of
    columns, and raises Refused if rows are invalid.

    Attributes:
        wrong_inputs: inputs that are not strings [batch].
    """

    def __init__(self, inputs: Specs, outputs: Specs, call: Callable[[Arrays, Sequence[str]], Arrays]):
        self.inputs, self.outputs, self._call = tuple(sorted(inputs)), dict(sorted(outputs.items())), call
        texts = (DT_STRING, 1), (DT_STRING, -1)
        self.wrong_inputs = tuple(name for name, spec in inputs.items() if spec not in texts)

    def __call__(self, columns: Arrays, outputs: Sequence[str]) -> Arrays:
        return self._call(columns, outputs)


@functools.lru_cache(maxsize=1)
def open_model(source: ModelSource) -> ScoringModel:
    """Opens a model, once per process."""
    if source.target:
        model = _served(source)
    else:
        model = _loaded(source) if (Path(source.model) / _SAVED_MODEL).is_file() else _lite(source)
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
    start_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the tokenizers' ops

    if source.threads:
        tf.config.threading.set_intra_op_parallelism_threads(source.threads)
    try:
        model = tf.saved_model.load(source.model)
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise UserError(f"cannot load the SavedModel '{source.model}': {_first_line(error)}") from error
    function = _signature(source, model.signatures)

    def call(columns: Arrays, outputs: Sequence[str]) -> Arrays:
        try:
            answers = function(**{name: tf.constant(values) for name, values in columns.items()})
        except tf.errors.InvalidArgumentError as error:
            raise Refused(_first_line(error)) from error
        return {name: answers[name].numpy() for name in outputs}

    # The model must outlive its signature function.
    call.model = model  # type: ignore[attr-defined]
    inputs, outputs = (
        {
            name: (one.dtype.as_datatype_enum, -1 if one.shape.rank is None else one.shape.rank)
            for name, one in of.items()
        }
        for of in (function.structured_input_signature[1], function.structured_outputs)
    )
    return ScoringModel(inputs, outputs, call)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    nodes = [number for number, line in enumerate(lines) if "[[{{node" in line]
    return lines[max(nodes[0] - 1, 0) if nodes else 0].strip()[:300]


def _lite(source: ModelSource) -> ScoringModel:
    # Only a LiteRT version needs its engine.
    from serving.lite.model import LiteModel
    from serving.lite.signatures import signatures_of

    signature = _signature(source, signatures_of(LiteModel(source.model, source.threads)))

    def call(columns: Arrays, outputs: Sequence[str]) -> Arrays:
        try:
            answers = signature.call(columns, lambda: None)
        except UserError as error:
            raise Refused(str(error)[:300]) from error
        return {name: answers[name] for name in outputs}

    inputs, outputs = (
        {name: (type_number(dtype), len(shape)) for name, (dtype, shape) in of.items()}
        for of in (signature.inputs, signature.outputs)
    )
    return ScoringModel(inputs, outputs, call)


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

    inputs, outputs = (
        {name: (one.dtype, -1 if one.shape is None else len(one.shape)) for name, one in of.items()}
        for of in (signature.inputs, signature.outputs)
    )
    return ScoringModel(inputs, outputs, call)


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

    texts = {name: (DT_STRING, 1) for name in model.inputs if name not in options}
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


def _signature(source: ModelSource, signatures: Any) -> Any:
    """Returns the signature to call; raises UserError if the model lacks it."""
    if source.signature in signatures:
        return signatures[source.signature]
    known = ", ".join(name for name in signatures if not name.startswith("__"))
    if source.options:
        asked = " and ".join(f"--{name}" for name, value in source.options if value)
        raise UserError(
            f"{asked}: the model has no signature '{source.signature}' ({known}); exports of today whose rows are a"
            " text or a pair have it"
        )
    raise UserError(f"--signature={source.signature} is not the model's; it has {known}")
