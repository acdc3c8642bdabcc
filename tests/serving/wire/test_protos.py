"""Our light messages against the wheels' own: same names, numbers, types; bytes that each side reads alike."""

import pytest
from google.protobuf import descriptor_pool

from serving.wire import protos

# Those that are nested in the original; nesting does not show on the wire.
NESTED = {
    "tensorflow.Dim": "tensorflow.TensorShapeProto.Dim",
    "tensorflow.serving.State": "tensorflow.serving.ModelVersionStatus.State",
} | {
    f"tensorflow.serving.{name.rpartition('.')[2]}": f"tensorflow.serving.FileSystemStoragePathSourceConfig.{name}"
    for name in (
        "ServableVersionPolicy",
        "ServableVersionPolicy.All",
        "ServableVersionPolicy.Latest",
        "ServableVersionPolicy.Specific",
    )
}
# No wheel has these.
OURS_ALONE = {"SSLConfig", "PrometheusConfig", "MonitoringConfig", "BatchingParameters"}


@pytest.fixture(scope="module")
def wheel_pool():
    from tensorflow_serving.apis import (  # noqa: F401
        get_model_metadata_pb2,
        model_service_pb2_grpc,
        prediction_log_pb2,
        prediction_service_pb2_grpc,
    )

    return descriptor_pool.Default()


@pytest.mark.parametrize(
    "name",
    [f"{package}.{name}" for package, messages in protos._FILES.items() for name in messages if name not in OURS_ALONE],
)
def test_every_field_is_the_wheels_field(wheel_pool, name):
    theirs = wheel_pool.FindMessageTypeByName(NESTED.get(name, name))
    for field in protos._POOL.FindMessageTypeByName(name).fields:
        twin = theirs.fields_by_name[field.name]

        def facts(one):
            of = one.message_type or one.enum_type
            oneof = one.containing_oneof.name if one.containing_oneof else None
            type_name = NESTED.get(of.full_name, of.full_name) if of else None
            return one.number, one.type, one.is_repeated, one.is_packed, oneof, type_name

        assert facts(field) == facts(twin), field.name


@pytest.mark.parametrize("name", protos._ENUMS)
def test_every_enum_is_the_wheels(wheel_pool, name):
    ours, theirs = protos._POOL.FindEnumTypeByName(name), wheel_pool.FindEnumTypeByName(NESTED.get(name, name))
    given, expected = ({value.name: value.number for value in one.values} for one in (ours, theirs))
    more = {"DO_NOT_USE_RESERVED_FOR_FUTURE_EXPANSION_USE_DEFAULT_IN_SWITCH_INSTEAD_"}
    assert given.items() <= expected.items()
    assert expected.keys() - given.keys() <= more
