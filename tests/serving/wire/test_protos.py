"""Our light messages against the wheels' own: same names, numbers, types; bytes that each side reads alike."""

import pytest
from google.protobuf import descriptor_pool

from serving.wire import protos

OURS = [
    protos.TensorProto,
    protos.Example,
    protos.PredictRequest,
    protos.PredictResponse,
    protos.SignatureDefMap,
    protos.GetModelMetadataRequest,
    protos.GetModelMetadataResponse,
    protos.GetModelStatusRequest,
    protos.GetModelStatusResponse,
]


@pytest.fixture(scope="module")
def wheel_pool():
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2  # noqa: F401

    return descriptor_pool.Default()


def reachable(descriptor, seen=None):
    """Every message type below `descriptor`, itself included."""
    seen = {} if seen is None else seen
    if descriptor.full_name not in seen:
        seen[descriptor.full_name] = descriptor
        for field in descriptor.fields:
            if field.message_type:
                reachable(field.message_type, seen)
    return seen


@pytest.mark.parametrize("message", OURS, ids=lambda message: message.DESCRIPTOR.name)
def test_every_field_is_the_wheels_field(message, wheel_pool):
    for name, ours in reachable(message.DESCRIPTOR).items():
        # The one message that is nested in the original; nesting does not show on the wire.
        theirs = wheel_pool.FindMessageTypeByName(
            "tensorflow.TensorShapeProto.Dim" if name == "tensorflow.Dim" else name
        )
        for field in ours.fields:
            twin = theirs.fields_by_name[field.name]
            enum_as_number = twin.type == twin.TYPE_ENUM and field.type == field.TYPE_INT32
            assert field.type == twin.type or enum_as_number, (name, field.name)
            assert field.number == twin.number, (name, field.name)
            assert field.is_repeated == twin.is_repeated and field.is_packed == twin.is_packed, (name, field.name)


def test_a_response_of_the_wheel_reads_alike(wheel_pool):
    from tensorflow_serving.apis import predict_pb2

    theirs = predict_pb2.PredictResponse()
    theirs.model_spec.name = "m"
    theirs.model_spec.version.value = 7
    theirs.outputs["y"].dtype = 1
    theirs.outputs["y"].float_val.extend([1.5, -2.0])
    ours = protos.PredictResponse.FromString(theirs.SerializeToString())
    assert ours.model_spec.version.value == 7
    assert list(ours.outputs["y"].float_val) == [1.5, -2.0]
    assert predict_pb2.PredictResponse.FromString(ours.SerializeToString()) == theirs


def test_version_states_are_the_wheels(wheel_pool):
    from tensorflow_serving.apis import get_model_status_pb2

    states = dict(get_model_status_pb2.ModelVersionStatus.State.items())
    assert {number: name for name, number in states.items()} == protos.VERSION_STATES
