"""The RPCs: which message each takes, and the call that answers it."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from serving.model_server import metrics
from serving.model_server.classify import classify, multi_inference, regress
from serving.model_server.core import ServerCore
from serving.model_server.metadata import get_model_metadata, get_model_status
from serving.model_server.predict import DEFAULT_SIGNATURE, predict
from serving.model_server.status import invalid_argument
from serving.wire.tensors import named_tensors

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_OUTPUTS_FIELD = predict_pb2.PredictResponse.OUTPUTS_FIELD_NUMBER


@dataclass(frozen=True)
class Method:
    """call(core, request, timeout in seconds or None) -> serialised response; raises StatusError or
    tf.errors.OpError."""

    service: str
    name: str
    request_type: type[Message]
    call: Callable[[ServerCore, Message, float | None], bytes]
    is_inference: bool = True


def model_spec(request: Message) -> model_pb2.ModelSpec:
    """The model a request is for, empty when it names none."""
    if isinstance(request, inference_pb2.MultiInferenceRequest):
        return request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()
    return getattr(request, "model_spec", None) or model_pb2.ModelSpec()


def _checked_spec(request: Message) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _fill_spec(answer: model_pb2.ModelSpec, asked: model_pb2.ModelSpec, version: int, signature: str) -> None:
    answer.name = asked.name
    answer.version.value = version
    answer.signature_name = signature or DEFAULT_SIGNATURE


def _predict(core: ServerCore, request: predict_pb2.PredictRequest, timeout: float | None) -> bytes:
    spec = _checked_spec(request)
    response = predict_pb2.PredictResponse()
    with core.use(spec) as servable:
        signature, outputs = predict(
            servable, spec.signature_name, request.inputs, request.output_filter, timeout, servable.check_method
        )
        _fill_spec(response.model_spec, spec, servable.version, signature)
    as_content = core.options.enable_serialization_as_tensor_content
    return named_tensors(_OUTPUTS_FIELD, outputs, as_content, tf.make_tensor_proto) + response.SerializeToString()


def _classify(core: ServerCore, request: classification_pb2.ClassificationRequest, timeout: float | None) -> bytes:
    spec = _checked_spec(request)
    response = classification_pb2.ClassificationResponse()
    with core.use(spec) as servable:
        response.result.CopyFrom(classify(servable, spec.signature_name, request.input, timeout))
        _fill_spec(response.model_spec, spec, servable.version, spec.signature_name)
    return response.SerializeToString()


def _regress(core: ServerCore, request: regression_pb2.RegressionRequest, timeout: float | None) -> bytes:
    spec = _checked_spec(request)
    response = regression_pb2.RegressionResponse()
    with core.use(spec) as servable:
        response.result.CopyFrom(regress(servable, spec.signature_name, request.input, timeout))
        _fill_spec(response.model_spec, spec, servable.version, spec.signature_name)
    return response.SerializeToString()


def _multi_inference(core: ServerCore, request: inference_pb2.MultiInferenceRequest, timeout: float | None) -> bytes:
    with core.use(model_spec(request)) as servable:
        return multi_inference(servable, request, timeout).SerializeToString()


def _reload(core: ServerCore, request: model_management_pb2.ReloadConfigRequest, timeout: float | None) -> bytes:
    if request.config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
    before = {name: metrics.total(name) for name in request.metric_names}
    response = model_management_pb2.ReloadConfigResponse()
    core.reload(request.config, timeout)
    response.status.SetInParent()
    for name, value in before.items():
        response.metric.add(name=name, int64_value_increase=metrics.total(name) - value)
    return response.SerializeToString()


METHODS = (
    Method(PREDICTION_SERVICE, "Predict", predict_pb2.PredictRequest, _predict),
    Method(PREDICTION_SERVICE, "Classify", classification_pb2.ClassificationRequest, _classify),
    Method(PREDICTION_SERVICE, "Regress", regression_pb2.RegressionRequest, _regress),
    Method(PREDICTION_SERVICE, "MultiInference", inference_pb2.MultiInferenceRequest, _multi_inference),
    Method(
        PREDICTION_SERVICE,
        "GetModelMetadata",
        get_model_metadata_pb2.GetModelMetadataRequest,
        lambda core, request, timeout: get_model_metadata(core, request).SerializeToString(),
        is_inference=False,
    ),
    Method(
        MODEL_SERVICE,
        "GetModelStatus",
        get_model_status_pb2.GetModelStatusRequest,
        lambda core, request, timeout: get_model_status(core, request).SerializeToString(),
        is_inference=False,
    ),
    Method(
        MODEL_SERVICE,
        "HandleReloadConfigRequest",
        model_management_pb2.ReloadConfigRequest,
        _reload,
        is_inference=False,
    ),
)
