"""The RPCs: their messages and handlers."""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from serving.model_server import telemetry
from serving.model_server.core import ServerCore
from serving.model_server.prediction import CLASSIFY, DEFAULT_SIGNATURE, REGRESS, infer, multi_inference, predict
from serving.model_server.status import invalid_argument, not_found
from serving.wire.protos import (
    ClassificationRequest,
    ClassificationResponse,
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelSpec,
    MultiInferenceRequest,
    PredictRequest,
    PredictResponse,
    RegressionRequest,
    RegressionResponse,
    ReloadConfigRequest,
    ReloadConfigResponse,
    SignatureDefMap,
)
from serving.wire.tensors import named_tensors

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_OUTPUTS_FIELD = PredictResponse.DESCRIPTOR.fields_by_name["outputs"].number
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


def model_spec(request: Message) -> ModelSpec:
    """Returns a request's ModelSpec, empty if it has none."""
    if isinstance(request, MultiInferenceRequest):
        return request.tasks[0].model_spec if request.tasks else ModelSpec()
    return getattr(request, "model_spec", None) or ModelSpec()


def _checked_spec(request: Message) -> ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _fill_spec(answer: ModelSpec, asked: ModelSpec, version: int, signature: str) -> None:
    answer.name = asked.name
    answer.version.value = version
    answer.signature_name = signature or DEFAULT_SIGNATURE


def _predict(core: ServerCore, request: PredictRequest, timeout: float | None) -> bytes:
    spec = _checked_spec(request)
    response = PredictResponse()
    with core.use(spec) as servable:
        signature, outputs = predict(
            servable, spec.signature_name, request.inputs, request.output_filter, timeout, servable.check_method
        )
        _fill_spec(response.model_spec, spec, servable.version, signature)
    as_content = core.options.enable_serialization_as_tensor_content
    return named_tensors(_OUTPUTS_FIELD, outputs, as_content) + response.SerializeToString()


def _of_examples(response_type: type[Message], method: str) -> Call:
    def call(core: ServerCore, request: Message, timeout: float | None) -> bytes:
        spec = _checked_spec(request)
        response = response_type()
        with core.use(spec) as servable:
            response.result.CopyFrom(infer(servable, method, spec.signature_name, request.input, timeout))
            _fill_spec(response.model_spec, spec, servable.version, spec.signature_name)
        return response.SerializeToString()

    return call


def _multi_inference(core: ServerCore, request: MultiInferenceRequest, timeout: float | None) -> bytes:
    with core.use(model_spec(request)) as servable:
        return multi_inference(servable, request, timeout).SerializeToString()


def _reload(core: ServerCore, request: ReloadConfigRequest, timeout: float | None) -> bytes:
    if request.config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
    before = {name: telemetry.total(name) for name in request.metric_names}
    response = ReloadConfigResponse()
    core.reload(request.config, timeout)
    response.status.SetInParent()
    for name, value in before.items():
        response.metric.add(name=name, int64_value_increase=telemetry.total(name) - value)
    return response.SerializeToString()


def get_model_metadata(core: ServerCore, request: GetModelMetadataRequest) -> GetModelMetadataResponse:
    """Returns the model's signatures."""
    spec = _checked_spec(request)
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != _SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    response = GetModelMetadataResponse()
    with core.use(spec) as servable:
        signatures = SignatureDefMap()
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = spec.name
        response.model_spec.version.value = servable.version
    response.metadata[_SIGNATURE_DEF].Pack(signatures)
    return response


def get_model_status(core: ServerCore, request: GetModelStatusRequest) -> GetModelStatusResponse:
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
    response = GetModelStatusResponse()
    for number, state, error in states:
        entry = response.model_version_status.add(version=number, state=state)
        entry.status.SetInParent()
        if error is not None:
            entry.status.error_code = error.number
            entry.status.error_message = error.message
    return response


def _serialised(answer: Callable[[ServerCore, Message], Message]) -> Call:
    return lambda core, request, timeout: answer(core, request).SerializeToString()


_classify = _of_examples(ClassificationResponse, CLASSIFY)
_regress = _of_examples(RegressionResponse, REGRESS)
_metadata, _status = _serialised(get_model_metadata), _serialised(get_model_status)
METHODS = (
    Method(PREDICTION_SERVICE, "Predict", PredictRequest, _predict),
    Method(PREDICTION_SERVICE, "Classify", ClassificationRequest, _classify),
    Method(PREDICTION_SERVICE, "Regress", RegressionRequest, _regress),
    Method(PREDICTION_SERVICE, "MultiInference", MultiInferenceRequest, _multi_inference),
    Method(PREDICTION_SERVICE, "GetModelMetadata", GetModelMetadataRequest, _metadata, False),
    Method(MODEL_SERVICE, "GetModelStatus", GetModelStatusRequest, _status, False),
    Method(MODEL_SERVICE, "HandleReloadConfigRequest", ReloadConfigRequest, _reload, False),
)
