"""GetModelMetadata and GetModelStatus."""

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.model_server.core import ServerCore
from serving.model_server.status import invalid_argument, not_found

_SIGNATURE_DEF = "signature_def"


def get_model_metadata(
    core: ServerCore, request: get_model_metadata_pb2.GetModelMetadataRequest
) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Every signature of the model, packed as the one metadata field there is. Raises StatusError."""
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != _SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    with core.use(request.model_spec) as servable:
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = servable.version
    response.metadata[_SIGNATURE_DEF].Pack(signatures)
    return response


def get_model_status(
    core: ServerCore, request: get_model_status_pb2.GetModelStatusRequest
) -> get_model_status_pb2.GetModelStatusResponse:
    """The state of every version of the model, or of the one asked for; a label is ignored. Raises StatusError."""
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    name = request.model_spec.name
    states = core.states(name)
    if not states:
        raise not_found(f"Could not find any versions of model {name}")
    if request.model_spec.WhichOneof("version_choice") == "version":
        number = request.model_spec.version.value
        states = [state for state in states if state[0] == number]
        if not states:
            raise not_found(f"Could not find version {number} of model {name}")
    response = get_model_status_pb2.GetModelStatusResponse()
    for number, state, error in states:
        entry = response.model_version_status.add(version=number, state=state)
        entry.status.SetInParent()
        if error is not None:
            entry.status.error_code = error.number
            entry.status.error_message = error.message
    return response
