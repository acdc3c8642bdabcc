"""The RPCs: which message each takes, and the call that answers it."""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from serving.model_server.core import ServerCore
from serving.model_server.metadata import get_model_metadata, get_model_status
from serving.model_server.predict import predict
from serving.model_server.status import invalid_argument
from serving.model_server.tensors import fill_proto

_PREDICTION = "tensorflow.serving.PredictionService"
_MODEL = "tensorflow.serving.ModelService"


@dataclass(frozen=True)
class Method:
    """call(core, request, timeout in seconds or None) -> response; raises ServingError or tf.errors.OpError."""

    service: str
    name: str
    request_type: type[Message]
    call: Callable[[ServerCore, Message, float | None], Message]


def _predict(core: ServerCore, request: predict_pb2.PredictRequest, timeout: float | None) -> Message:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    with core.use(request.model_spec) as servable:
        signature_name, outputs = predict(
            servable,
            request.model_spec.signature_name,
            request.inputs,
            request.output_filter,
            timeout,
            core.options.enable_signature_method_name_check,
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = servable.version
        response.model_spec.signature_name = signature_name
    for alias, value in outputs.items():
        fill_proto(response.outputs[alias], value, core.options.enable_serialization_as_tensor_content)
    return response


METHODS = (
    Method(_PREDICTION, "Predict", predict_pb2.PredictRequest, _predict),
    Method(
        _PREDICTION, "GetModelMetadata", get_model_metadata_pb2.GetModelMetadataRequest,
        lambda core, request, timeout: get_model_metadata(core, request),
    ),
    Method(
        _MODEL, "GetModelStatus", get_model_status_pb2.GetModelStatusRequest,
        lambda core, request, timeout: get_model_status(core, request),
    ),
)  # fmt: skip
