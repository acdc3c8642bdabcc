"""Predict on named tensors; Classify, Regress and MultiInference on tf.Examples."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from grpc import StatusCode

from serving.client.tasks import counts_in
from serving.model_server import telemetry
from serving.model_server.status import StatusError, invalid_argument
from serving.model_server.versions.manager import Servable
from serving.wire.protos import (
    DATA_TYPES,
    ClassificationResult,
    Input,
    ModelSpec,
    MultiInferenceRequest,
    MultiInferenceResponse,
    RegressionResult,
    SignatureDef,
    TensorProto,
)
from serving.wire.tensors import DT_FLOAT, DT_INT32, DT_STRING, to_numpy, type_number
from tfrecords.base.errors import refuse

DEFAULT_SIGNATURE = "serving_default"
PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))
_TOKENIZE = "tokenize"
_METHODS = (PREDICT, CLASSIFY, REGRESS)
_INPUTS, _CLASSES, _SCORES, _OUTPUTS = "inputs", "classes", "scores", "outputs"

Outputs = Mapping[str, np.ndarray]


def predict(
    servable: Servable,
    signature_name: str,
    inputs: Mapping[str, TensorProto | np.ndarray],
    output_filter: Sequence[str] = (),
    timeout: float | None = None,
    counts: bool = True,
) -> dict[str, np.ndarray]:
    """Runs one signature; returns arrays by output alias.

    An empty `signature_name` means serving_default, an empty `output_filter` all outputs. `timeout` is in seconds.
    `counts` records token counts.

    Raises StatusError.
    """
    name = signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(name)
    if signature is None:
        raise StatusError(StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    if servable.check_method and signature.method_name not in _METHODS:
        raise invalid_argument(f"Expected prediction signature method_name to be one of {{{', '.join(_METHODS)}}}. "
                               f"Was: {signature.method_name}")  # fmt: skip
    feeds = _feeds(signature, inputs)
    aliases = _outputs(signature, output_filter)
    counted = _counted(servable, name, aliases) if counts else ()
    fetched = list(dict.fromkeys((*aliases, *counted)))
    values = servable.run("Predict", feeds, [signature.outputs[alias].name for alias in fetched], timeout)
    answers = dict(zip(fetched, values, strict=True))
    if counted:
        telemetry.record_tokens(servable.name, {alias: answers[alias] for alias in counted})
    return {alias: answers[alias] for alias in aliases}


# Returns the names of the token counts to record; none if another request for these texts records them.
def _counted(servable: Servable, name: str, aliases: Sequence[str]) -> tuple[str, ...]:
    def counts(key: str) -> tuple[str, ...]:
        outputs = servable.signatures[key].outputs if key in servable.signatures else {}
        return counts_in([alias for alias, info in outputs.items() if info.dtype == DT_INT32])

    found = counts(name)
    if name == _TOKENIZE and (counts(DEFAULT_SIGNATURE) or not counts_in(aliases)):
        return ()
    return found


def _feeds(signature: SignatureDef, inputs: Mapping) -> dict[str, np.ndarray]:
    defaults = signature.defaults
    required = set(signature.inputs) - set(defaults)
    if len(inputs) > len(signature.inputs) or len(inputs) < len(required):
        sent, expected = set(inputs), set(signature.inputs)
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(expected)} len({_names(sent)}) != "
            f"len({_names(expected)}). Sent extra: {_names(sent - expected)}. "
            f"Missing but required: {_names(required - sent)}."
        )
    feeds = {}
    for alias, info in sorted(signature.inputs.items()):
        value = inputs.get(alias) if alias in inputs else None
        if value is not None:
            feeds[info.name] = value if isinstance(value, np.ndarray) else _parse_tensor(alias, value)
        elif alias in defaults:
            feeds[info.name] = _parse_tensor(alias, defaults[alias])
        else:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and no default value "
                f"provided. Inputs expected to be in the request {_names(inputs)}, or default input alias set: "
                + ",".join(sorted(defaults))
            )
    return feeds


def _parse_tensor(alias: str, tensor: TensorProto) -> np.ndarray:
    try:
        return to_numpy(tensor, ml_dtypes.bfloat16)
    except (ValueError, OverflowError) as error:
        raise invalid_argument(f"tensor parsing error: {alias}") from error


def _outputs(signature: SignatureDef, output_filter: Sequence[str]) -> list[str]:
    aliases: list[str] = []
    for alias in output_filter:
        refuse({
            f"output tensor alias not found in signature: {alias} "
            f"Outputs expected to be in the set {_names(signature.outputs)}.":
                alias not in signature.outputs,
            f"duplicate output tensor alias: {alias}":
                alias in aliases,
        }, invalid_argument)  # fmt: skip
        aliases.append(alias)
    return aliases or sorted(signature.outputs)


def _names(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"


def infer(
    servable: Servable, method: str, signature_name: str, examples: Input, timeout: float | None = None
) -> ClassificationResult | RegressionResult:
    """Returns labels and scores of each example for CLASSIFY, a value for REGRESS; `timeout` in seconds."""
    asked = {signature_name or DEFAULT_SIGNATURE: method}
    complaint = "No signature was found with the name"
    ((_, result),) = _results(servable, _HEADS[method].api, asked, examples, timeout, complaint)
    return result


def multi_inference(
    servable: Servable, request: MultiInferenceRequest, timeout: float | None = None
) -> MultiInferenceResponse:
    """Runs classify and regress signatures on the same examples, in one run of the graph."""
    methods: dict[str, str] = {}
    for task in request.tasks:
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        complaint = ""
        if not task.model_spec.name:
            complaint = "Found ModelSpec with an empty model name."
        elif task.model_spec.name != request.tasks[0].model_spec.name:
            complaint = "All ModelSpecs in a MultiInferenceRequest must access the same model name."
        elif name in methods:
            complaint = f"Duplicate evaluation of signature: {name}"
        if complaint:
            raise invalid_argument(complaint)
        methods[name] = task.method_name
    complaint = "Requested signature not found in model graph"
    found = _results(servable, "MultiInference", methods, request.input, timeout, complaint)
    response = MultiInferenceResponse()
    for task, (head, result) in zip(request.tasks, found, strict=True):
        answer = response.results.add()
        getattr(answer, head.field).CopyFrom(result)
        fill_spec(answer.model_spec, servable, task.model_spec)
    return response


def fill_spec(answer: ModelSpec, servable: Servable, asked: ModelSpec) -> None:
    """Fills the ModelSpec of an answer."""
    answer.name, answer.version.value = asked.name, servable.version
    answer.signature_name = asked.signature_name or DEFAULT_SIGNATURE


def _results(
    servable: Servable, api: str, methods: Mapping[str, str], examples: Input, timeout: float | None, complaint: str
) -> list[tuple["_Head", Any]]:
    """Returns the results of signatures by their methods; `complaint` is of a signature that is not there."""
    plans = []
    for name, method in methods.items():
        if name not in servable.signatures:
            raise invalid_argument(f"{complaint}: {name}")
        if method not in _HEADS:
            raise StatusError(StatusCode.UNIMPLEMENTED, f"Unsupported signature method_name: {method}")
        plans.append((_HEADS[method], *_HEADS[method].plan(servable.signatures[name], servable.check_method)))
    serialized = _serialized_examples(examples)
    feeds = dict.fromkeys((tensor for _, tensor, _ in plans), serialized)
    fetches = sorted({name for *_, names in plans for name in names.values()})
    values = dict(zip(fetches, servable.run(api, feeds, fetches, timeout), strict=True))
    telemetry.REQUEST_EXAMPLE_COUNTS.labels(servable.name).observe(len(serialized))
    telemetry.REQUEST_EXAMPLE_COUNT_TOTAL.labels(servable.name).inc(len(serialized))
    return [
        (head, head.result({alias: values[name] for alias, name in names.items()}, len(serialized)))
        for head, _, names in plans
    ]


def _serialized_examples(examples: Input) -> np.ndarray:
    kind = examples.WhichOneof("kind")
    # Messages concatenated on the wire are merged: that is how the context's features reach every example.
    context = examples.example_list_with_context.context.SerializeToString() if kind != "example_list" else b""
    entries = getattr(examples, kind).examples if kind else ()
    if not entries:
        raise invalid_argument("Input is empty.")
    return np.array([context + entry.SerializeToString() for entry in entries], object)


def _classification(values: Outputs, count: int) -> ClassificationResult:
    labels, scores = (
        _checked_matrix(values[alias], alias, dtype, count) if alias in values else None
        for alias, dtype in ((_CLASSES, DT_STRING), (_SCORES, DT_FLOAT))
    )
    if labels is not None and scores is not None and labels.shape[1] != scores.shape[1]:
        raise invalid_argument(
            f"Tensors class and score should match in dim_size(1). Got {labels.shape[1]} vs. {scores.shape[1]}"
        )
    result = ClassificationResult()
    for row in range(count):
        classifications = result.classifications.add()
        for column in range((labels if labels is not None else scores).shape[1]):
            entry = classifications.classes.add()
            if labels is not None:
                entry.label = labels[row, column].decode("utf-8", "replace")
            if scores is not None:
                entry.score = scores[row, column]
    return result


def _checked_matrix(value: np.ndarray, alias: str, dtype: int, count: int) -> np.ndarray:
    value = np.asarray(value)
    refuse({
        f"Expected Tensor shape: [batch_size num_classes] but got {_shape(value)}": value.ndim != 2,
        f"Expected {alias} Tensor of {DATA_TYPES[dtype]}. Got: {_enum_name(value)}": type_number(value.dtype) != dtype,
        f"Expected {alias} output batch size of {count}. Got: {_rows(value)}": _rows(value) != count,
    }, invalid_argument)  # fmt: skip
    return value


def _regression(values: Outputs, count: int) -> RegressionResult:
    value = np.asarray(values[_OUTPUTS])
    refuse({
        f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(value)}":
            value.ndim not in (1, 2) or value.shape[1:] not in ((), (1,)),
        f"Input batch size did not match output batch size: {count} vs. {_rows(value)}": _rows(value) != count,
        f"Expected output Tensor of DT_FLOAT.  Got: {_enum_name(value)}": type_number(value.dtype) != DT_FLOAT,
    }, invalid_argument)  # fmt: skip
    result = RegressionResult()
    for number in value.reshape(-1).tolist():
        result.regressions.add(value=number)
    return result


@dataclass(frozen=True)
class _Head:
    api: str
    kind: str
    outputs: tuple[str, ...]
    result: Callable[[Outputs, int], object]

    @property
    def field(self) -> str:
        return f"{self.kind}_result"

    def plan(self, signature: SignatureDef, check_method: bool) -> tuple[str, dict[str, str]]:
        """Returns the name of the input tensor, and those of the outputs by their aliases."""
        method = f"tensorflow/serving/{self.api.lower()}"
        expected = "one or two output Tensors" if len(self.outputs) > 1 else "one output Tensor"
        count = len(signature.outputs)
        refuse({
            f"Expected {self.kind} signature method_name to be {method}. Was: {signature.method_name}":
                check_method and signature.method_name != method,
            "Expected one input Tensor.": len(signature.inputs) != 1,
            f"Expected {expected}, found {count}": not 1 <= count <= len(self.outputs),
        }, invalid_argument)  # fmt: skip
        if _INPUTS not in signature.inputs:
            raise invalid_argument(f"No {self.kind} inputs found in SignatureDef: {signature}")
        fetches = {alias: signature.outputs[alias].name for alias in self.outputs if alias in signature.outputs}
        if not fetches:
            names = " or ".join(f'"{alias}"' for alias in self.outputs)
            raise invalid_argument(
                f"Expected {self.kind} signature outputs to contain at least one of {names}. Signature was: {signature}"
            )
        return signature.inputs[_INPUTS].name, fetches


_HEADS = {
    CLASSIFY: _Head("Classify", "classification", (_CLASSES, _SCORES), _classification),
    REGRESS: _Head("Regress", "regression", (_OUTPUTS,), _regression),
}


def _shape(value: np.ndarray) -> str:
    return "[" + ",".join(map(str, value.shape)) + "]"


def _rows(value: np.ndarray) -> int:
    return len(value) if value.ndim else 0


def _enum_name(value: np.ndarray) -> str:
    return DATA_TYPES[type_number(value.dtype)]
