"""The RPCs: their messages and handlers."""

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

from serving.model_server import telemetry
from serving.model_server.core import ServerCore
from serving.model_server.prediction import DEFAULT_SIGNATURE, classify, multi_inference, predict, regress
from serving.model_server.status import invalid_argument, not_found
from serving.wire.tensors import named_tensors

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_OUTPUTS_FIELD = predict_pb2.PredictResponse.OUTPUTS_FIELD_NUMBER
_SIGNATURE_DEF = "signature_def"
Call = Callable[[ServerCore, Message, float | None], bytes]


@dataclass(frozen=True)
class Method:
    """An RPC; `call` takes the core, the request and a timeout in seconds or None."""

    service: str
    name: str
    request_type: type[Message]
    call: Call
    is_inference: bool = True


def model_spec(request: Message) -> model_pb2.ModelSpec:
    """Returns a request's ModelSpec, empty if it has none."""
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


def _of_examples(response_type: type[Message], infer: Callable) -> Call:
    def call(core: ServerCore, request: Message, timeout: float | None) -> bytes:
        spec = _checked_spec(request)
        response = response_type()
        with core.use(spec) as servable:
            response.result.CopyFrom(infer(servable, spec.signature_name, request.input, timeout))
            _fill_spec(response.model_spec, spec, servable.version, spec.signature_name)
        return response.SerializeToString()

    return call


def _multi_inference(core: ServerCore, request: inference_pb2.MultiInferenceRequest, timeout: float | None) -> bytes:
    with core.use(model_spec(request)) as servable:
        return multi_inference(servable, request, timeout).SerializeToString()


def _reload(core: ServerCore, request: model_management_pb2.ReloadConfigRequest, timeout: float | None) -> bytes:
    if request.config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
    before = {name: telemetry.total(name) for name in request.metric_names}
    response = model_management_pb2.ReloadConfigResponse()
    core.reload(request.config, timeout)
    response.status.SetInParent()
    for name, value in before.items():
        response.metric.add(name=name, int64_value_increase=telemetry.total(name) - value)
    return response.SerializeToString()


def get_model_metadata(
    core: ServerCore, request: get_model_metadata_pb2.GetModelMetadataRequest
) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Returns the model's signatures."""
    spec = _checked_spec(request)
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != _SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    with core.use(spec) as servable:
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = spec.name
        response.model_spec.version.value = servable.version
    response.metadata[_SIGNATURE_DEF].Pack(signatures)
    return response


def get_model_status(
    core: ServerCore, request: get_model_status_pb2.GetModelStatusRequest
) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns the state of the model's versions, or of the requested one; ignores a label."""
    spec = _checked_spec(request)
    states = core.states(spec.name)
    if not states:
        raise not_found(f"Could not find any versions of model {spec.name}")
    if spec.WhichOneof("version_choice") == "version":
        number = spec.version.value
        states = [state for state in states if state[0] == number]
        if not states:
            raise not_found(f"Could not find version {number} of model {spec.name}")
    response = get_model_status_pb2.GetModelStatusResponse()
    for number, state, error in states:
        entry = response.model_version_status.add(version=number, state=state)
        entry.status.SetInParent()
        if error is not None:
            entry.status.error_code = error.number
            entry.status.error_message = error.message
    return response


def _serialised(answer: Callable[[ServerCore, Message], Message]) -> Call:
    return lambda core, request, timeout: answer(core, request).SerializeToString()


_classify = _of_examples(classification_pb2.ClassificationResponse, classify)
_regress = _of_examples(regression_pb2.RegressionResponse, regress)
_metadata, _status = _serialised(get_model_metadata), _serialised(get_model_status)
METHODS = (
    Method(PREDICTION_SERVICE, "Predict", predict_pb2.PredictRequest, _predict),
    Method(PREDICTION_SERVICE, "Classify", classification_pb2.ClassificationRequest, _classify),
    Method(PREDICTION_SERVICE, "Regress", regression_pb2.RegressionRequest, _regress),
    Method(PREDICTION_SERVICE, "MultiInference", inference_pb2.MultiInferenceRequest, _multi_inference),
    Method(PREDICTION_SERVICE, "GetModelMetadata", get_model_metadata_pb2.GetModelMetadataRequest, _metadata, False),
    Method(MODEL_SERVICE, "GetModelStatus", get_model_status_pb2.GetModelStatusRequest, _status, False),
    Method(MODEL_SERVICE, "HandleReloadConfigRequest", model_management_pb2.ReloadConfigRequest, _reload, False),
)
