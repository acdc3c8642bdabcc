"""TF Serving's messages, declared without TensorFlow, whose import takes seconds.

Field numbers are the published ones, so the bytes are identical. The descriptor pool is separate, so TensorFlow's own
messages may be in the same process. Enums are int32 (the same varint). ssl_config.proto, monitoring_config.proto and
session_bundle_config.proto, which no wheel contains, serve to read text files.
"""

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_FILES = {
    "tensorflow": {
        "Dim": "int64 size=1; string name=2",
        "TensorShapeProto": "repeated Dim dim=2; bool unknown_rank=3",
        "TensorProto": "int32 dtype=1; TensorShapeProto tensor_shape=2; int32 version_number=3; "
        "bytes tensor_content=4; repeated float float_val=5; repeated double double_val=6; repeated int32 int_val=7; "
        "repeated bytes string_val=8; repeated float scomplex_val=9; repeated int64 int64_val=10; "
        "repeated bool bool_val=11; repeated double dcomplex_val=12; repeated int32 half_val=13; "
        "repeated uint32 uint32_val=16; repeated uint64 uint64_val=17",
        "TensorInfo": "string name=1; int32 dtype=2; TensorShapeProto tensor_shape=3",
        "BytesList": "repeated bytes value=1",
        "Feature": "BytesList bytes_list=1",
        "Features": "map<Feature> feature=1",
        "Example": "Features features=1",
        "SignatureDef": "map<TensorInfo> inputs=1; map<TensorInfo> outputs=2; string method_name=3; "
        "map<TensorProto> defaults=4",
    },
    "tensorflow.serving": {
        "ModelSpec": "string name=1; google.protobuf.Int64Value version=2; string signature_name=3; "
        "string version_label=4",
        "PredictRequest": "ModelSpec model_spec=1; map<tensorflow.TensorProto> inputs=2; "
        "repeated string output_filter=3",
        "PredictResponse": "map<tensorflow.TensorProto> outputs=1; ModelSpec model_spec=2",
        "SignatureDefMap": "map<tensorflow.SignatureDef> signature_def=1",
        "GetModelMetadataRequest": "ModelSpec model_spec=1; repeated string metadata_field=2",
        "GetModelMetadataResponse": "ModelSpec model_spec=1; map<google.protobuf.Any> metadata=2",
        "StatusProto": "int32 error_code=1; string error_message=2",
        "ModelVersionStatus": "int64 version=1; int32 state=2; StatusProto status=3",
        "GetModelStatusRequest": "ModelSpec model_spec=1",
        "GetModelStatusResponse": "repeated ModelVersionStatus model_version_status=1",
        "SSLConfig": "string server_key=1; string server_cert=2; string custom_ca=3; bool client_verify=4",
        "PrometheusConfig": "bool enable=1; string path=2",
        "MonitoringConfig": "PrometheusConfig prometheus_config=1",
        "BatchingParameters": "google.protobuf.Int64Value max_batch_size=1; "
        "google.protobuf.Int64Value batch_timeout_micros=2; google.protobuf.Int64Value max_enqueued_batches=3; "
        "google.protobuf.Int64Value num_batch_threads=4; google.protobuf.StringValue thread_pool_name=5; "
        "repeated int64 allowed_batch_sizes=6; bool pad_variable_length_inputs=7; "
        "google.protobuf.BoolValue enable_large_batch_splitting=8; "
        "google.protobuf.Int64Value max_execution_batch_size=9",
    },
}
VERSION_STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {name: getattr(_Field, f"TYPE_{name.upper()}") for name in
            ("float", "double", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes")}  # fmt: skip


def _set_type(field: _Field, type_name: str, package: str) -> None:
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{type_name}" if "." in type_name else f".{package}.{type_name}"


def _add_field(message: descriptor_pb2.DescriptorProto, declaration: str, package: str) -> None:
    """Adds a field declared as `[repeated] TYPE NAME=NUMBER` or, with string keys, `map<TYPE> NAME=NUMBER`."""
    *label, type_name, assignment = declaration.split()
    name, number = assignment.split("=")
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if type_name.startswith("map<"):
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "string key=1", package)
        _add_field(entry, f"{type_name[4:-1]} value=2", package)
        label, type_name = ["repeated"], f"{package}.{message.name}.{entry.name}"
    if label:
        field.label = _Field.LABEL_REPEATED
    _set_type(field, type_name, package)


def _build_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    dependencies = [any_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name]
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    for package, messages in _FILES.items():
        file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax="proto3")
        file.dependency.extend(dependencies)
        for name, declarations in messages.items():
            message = file.message_type.add(name=name)
            for declaration in filter(None, declarations.split("; ")):
                _add_field(message, declaration, package)
        pool.AddSerializedFile(file.SerializeToString())
        dependencies.append(file.name)
    return pool


_POOL = _build_pool()


def _message_class(full_name: str) -> type:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))


TensorProto = _message_class("tensorflow.TensorProto")
Example = _message_class("tensorflow.Example")
PredictRequest = _message_class("tensorflow.serving.PredictRequest")
PredictResponse = _message_class("tensorflow.serving.PredictResponse")
SignatureDefMap = _message_class("tensorflow.serving.SignatureDefMap")
GetModelMetadataRequest = _message_class("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse = _message_class("tensorflow.serving.GetModelMetadataResponse")
GetModelStatusRequest = _message_class("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse = _message_class("tensorflow.serving.GetModelStatusResponse")
SSLConfig = _message_class("tensorflow.serving.SSLConfig")
MonitoringConfig = _message_class("tensorflow.serving.MonitoringConfig")
BatchingParameters = _message_class("tensorflow.serving.BatchingParameters")

PREDICT = "/tensorflow.serving.PredictionService/Predict"
GET_MODEL_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
GET_MODEL_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
