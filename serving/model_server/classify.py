"""Classify, Regress and MultiInference: tf.Examples in, labels, scores and values out."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, input_pb2, regression_pb2

from serving.model_server import metrics
from serving.model_server.predict import DEFAULT_SIGNATURE
from serving.model_server.servable import Servable
from serving.model_server.status import UNIMPLEMENTED, StatusError, invalid_argument

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
_INPUTS, _CLASSES, _SCORES, _OUTPUTS = "inputs", "classes", "scores", "outputs"

Outputs = Mapping[str, np.ndarray]


def classify(
    servable: Servable, signature_name: str, examples: input_pb2.Input, timeout: float | None = None
) -> classification_pb2.ClassificationResult:
    """Labels and scores of each example. Raises StatusError or tf.errors.OpError; timeout in seconds."""
    signature = _signature(servable, signature_name, "No signature was found with the name")
    tensor, fetches = _classify_plan(signature, servable.check_method)
    values, count = _run(servable, "Classify", examples, [tensor], fetches, timeout)
    return _classification(signature, count, values)


def regress(
    servable: Servable, signature_name: str, examples: input_pb2.Input, timeout: float | None = None
) -> regression_pb2.RegressionResult:
    """One value for each example. Raises StatusError or tf.errors.OpError; timeout in seconds."""
    signature = _signature(servable, signature_name, "No signature was found with the name")
    tensor, fetches = _regress_plan(signature, servable.check_method)
    values, count = _run(servable, "Regress", examples, [tensor], fetches, timeout)
    return _regression(signature, count, values)


def multi_inference(
    servable: Servable, request: inference_pb2.MultiInferenceRequest, timeout: float | None = None
) -> inference_pb2.MultiInferenceResponse:
    """Several classify and regress signatures of one model on the same examples, in one run of the graph.

    Each signature may have an input tensor of its own, as those of tf.saved_model.save do.
    """
    plans = _task_plans(servable, request)
    tensors = {tensor for _, tensor, _ in plans}
    fetches = sorted({name for _, _, names in plans for name in names})
    values, count = _run(servable, "MultiInference", request.input, tensors, fetches, timeout)
    response = inference_pb2.MultiInferenceResponse()
    for task, (signature, _, _) in zip(request.tasks, plans, strict=True):
        result = response.results.add()
        if task.method_name == CLASSIFY:
            result.classification_result.CopyFrom(_classification(signature, count, values))
        else:
            result.regression_result.CopyFrom(_regression(signature, count, values))
        result.model_spec.name = task.model_spec.name
        result.model_spec.version.value = servable.version
        result.model_spec.signature_name = task.model_spec.signature_name or DEFAULT_SIGNATURE
    return response


def _task_plans(servable: Servable, request: inference_pb2.MultiInferenceRequest) -> list:
    seen: set[str] = set()
    plans: list[tuple[meta_graph_pb2.SignatureDef, str, list[str]]] = []
    for task in request.tasks:
        if not task.model_spec.name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise invalid_argument("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        signature = _signature(servable, name, "Requested signature not found in model graph")
        if task.method_name == CLASSIFY:
            tensor, fetches = _classify_plan(signature, servable.check_method)
        elif task.method_name == REGRESS:
            tensor, fetches = _regress_plan(signature, servable.check_method)
        else:
            raise StatusError(UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}")
        plans.append((signature, tensor, fetches))
    return plans


def _signature(servable: Servable, name: str, complaint: str) -> meta_graph_pb2.SignatureDef:
    name = name or DEFAULT_SIGNATURE
    if name not in servable.signatures:
        raise invalid_argument(f"{complaint}: {name}")
    return servable.signatures[name]


def _classify_plan(signature: meta_graph_pb2.SignatureDef, check_method: bool) -> tuple[str, list[str]]:
    """The tensor to feed and those to fetch."""
    _check_head(signature, CLASSIFY, "classification", check_method)
    if len(signature.outputs) not in (1, 2):
        raise invalid_argument(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    tensor = _input_tensor(signature, "classification")
    fetches = [signature.outputs[alias].name for alias in (_CLASSES, _SCORES) if alias in signature.outputs]
    if not fetches:
        raise invalid_argument(
            "Expected classification signature outputs to contain at least one of "
            f'"{_CLASSES}" or "{_SCORES}". Signature was: {signature}'
        )
    return tensor, fetches


def _regress_plan(signature: meta_graph_pb2.SignatureDef, check_method: bool) -> tuple[str, list[str]]:
    _check_head(signature, REGRESS, "regression", check_method)
    if len(signature.outputs) != 1:
        raise invalid_argument("Expected one output Tensor.")
    tensor = _input_tensor(signature, "regression")
    if _OUTPUTS not in signature.outputs:
        raise invalid_argument(f"No regression outputs found in SignatureDef: {signature}")
    return tensor, [signature.outputs[_OUTPUTS].name]


def _check_head(signature: meta_graph_pb2.SignatureDef, method: str, kind: str, check_method: bool) -> None:
    if check_method and signature.method_name != method:
        raise invalid_argument(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise invalid_argument("Expected one input Tensor.")


def _input_tensor(signature: meta_graph_pb2.SignatureDef, kind: str) -> str:
    if _INPUTS not in signature.inputs:
        raise invalid_argument(f"No {kind} inputs found in SignatureDef: {signature}")
    return signature.inputs[_INPUTS].name


def _run(
    servable: Servable,
    api: str,
    examples: input_pb2.Input,
    tensors: Iterable[str],
    fetches: Sequence[str],
    timeout: float | None,
) -> tuple[Outputs, int]:
    serialized = _serialized_examples(examples)
    values = servable.run(api, dict.fromkeys(tensors, serialized), fetches, timeout)
    metrics.REQUEST_EXAMPLE_COUNTS.observe(len(serialized), servable.name)
    metrics.REQUEST_EXAMPLE_COUNT_TOTAL.increase(len(serialized), servable.name)
    return dict(zip(fetches, values, strict=True)), len(serialized)


def _serialized_examples(examples: input_pb2.Input) -> np.ndarray:
    kind = examples.WhichOneof("kind")
    # Messages concatenated on the wire are merged: that is how the context's features reach every example.
    context = examples.example_list_with_context.context.SerializeToString() if kind != "example_list" else b""
    entries = getattr(examples, kind).examples if kind else ()
    if not entries:
        raise invalid_argument("Input is empty.")
    return np.array([context + entry.SerializeToString() for entry in entries], object)


def _classification(
    signature: meta_graph_pb2.SignatureDef, count: int, values: Outputs
) -> classification_pb2.ClassificationResult:
    labels = scores = None
    if _CLASSES in signature.outputs:
        labels = _checked_matrix(values[signature.outputs[_CLASSES].name], _CLASSES, tf.string, count)
    if _SCORES in signature.outputs:
        scores = _checked_matrix(values[signature.outputs[_SCORES].name], _SCORES, tf.float32, count)
    if labels is not None and scores is not None and labels.shape[1] != scores.shape[1]:
        raise invalid_argument(
            f"Tensors class and score should match in dim_size(1). Got {labels.shape[1]} vs. {scores.shape[1]}"
        )
    result = classification_pb2.ClassificationResult()
    for row in range(count):
        classifications = result.classifications.add()
        for column in range((labels if labels is not None else scores).shape[1]):
            entry = classifications.classes.add()
            if labels is not None:
                entry.label = labels[row, column].decode("utf-8", "replace")
            if scores is not None:
                entry.score = scores[row, column]
    return result


def _checked_matrix(value: np.ndarray, alias: str, dtype: tf.DType, count: int) -> np.ndarray:
    value = np.asarray(value)
    if value.ndim != 2:
        raise invalid_argument(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(value)}")
    actual = tf.as_dtype(value.dtype)
    if actual != dtype:
        raise invalid_argument(f"Expected {alias} Tensor of {_enum_name(dtype)}. Got: {_enum_name(actual)}")
    if len(value) != count:
        raise invalid_argument(f"Expected {alias} output batch size of {count}. Got: {len(value)}")
    return value


def _regression(signature: meta_graph_pb2.SignatureDef, count: int, values: Outputs) -> regression_pb2.RegressionResult:
    value = np.asarray(values[signature.outputs[_OUTPUTS].name])
    if not (value.ndim == 1 or (value.ndim == 2 and value.shape[1] == 1)):
        raise invalid_argument(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(value)}"
        )
    if len(value) != count:
        raise invalid_argument(f"Input batch size did not match output batch size: {count} vs. {len(value)}")
    dtype = tf.as_dtype(value.dtype)
    if dtype != tf.float32:
        raise invalid_argument(f"Expected output Tensor of DT_FLOAT.  Got: {_enum_name(dtype)}")
    result = regression_pb2.RegressionResult()
    for number in value.reshape(-1).tolist():
        result.regressions.add(value=number)
    return result


def _shape(value: np.ndarray) -> str:
    return "[" + ",".join(map(str, value.shape)) + "]"


def _enum_name(dtype: tf.DType) -> str:
    return types_pb2.DataType.Name(dtype.as_datatype_enum)
