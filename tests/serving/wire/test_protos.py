"""Our light messages against the wheels' own: same names, numbers, types; bytes that each side reads alike."""

import pytest
from google.protobuf import descriptor_pool

from serving.wire import protos

OURS = (
    "TensorProto Example PredictRequest PredictResponse SignatureDefMap GetModelMetadataRequest "
    "GetModelMetadataResponse GetModelStatusRequest GetModelStatusResponse"
)


@pytest.fixture(scope="module")
def wheel_pool():
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2  # noqa: F401

    return descriptor_pool.Default()


def reachable(descriptor, seen):
    """Every message type below `descriptor`, itself included."""
    if seen.setdefault(descriptor.full_name, descriptor) is descriptor:
        for field in descriptor.fields:
            if field.message_type and field.message_type.full_name not in seen:
                reachable(field.message_type, seen)
    return seen


def test_every_field_is_the_wheels_field(wheel_pool):
    ours_by_name = {}
    for message in OURS.split():
        reachable(getattr(protos, message).DESCRIPTOR, ours_by_name)
    for name, ours in ours_by_name.items():
        # The one message that is nested in the original; nesting does not show on the wire.
        theirs = wheel_pool.FindMessageTypeByName(name.replace("tensorflow.Dim", "tensorflow.TensorShapeProto.Dim"))
        for field in ours.fields:
            twin = theirs.fields_by_name[field.name]
            enum_as_number = twin.type == twin.TYPE_ENUM and field.type == field.TYPE_INT32
            assert field.type == twin.type or enum_as_number, (name, field.name)
            given, expected = ((one.number, one.is_repeated, one.is_packed) for one in (field, twin))
            assert given == expected, (name, field.name)


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
