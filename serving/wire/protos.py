"""TF Serving's messages, declared without TensorFlow, whose import takes seconds.

Field numbers are the published ones, so the bytes are identical. The descriptor pool is separate, so TensorFlow's own
messages may be in the same process. ssl_config.proto, monitoring_config.proto and
session_bundle_config.proto, which no wheel contains, serve to read text files.
"""

import re
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_DATA_TYPES = (
    "DT_FLOAT=1 DT_DOUBLE=2 DT_INT32=3 DT_UINT8=4 DT_INT16=5 DT_INT8=6 DT_STRING=7 DT_COMPLEX64=8 "
    "DT_INT64=9 DT_BOOL=10 DT_QINT8=11 DT_QUINT8=12 DT_QINT32=13 DT_BFLOAT16=14 DT_QINT16=15 DT_QUINT16=16 "
    "DT_UINT16=17 DT_COMPLEX128=18 DT_HALF=19 DT_RESOURCE=20 DT_VARIANT=21 DT_UINT32=22 DT_UINT64=23 "
    "DT_FLOAT8_E5M2=24 DT_FLOAT8_E4M3FN=25 DT_FLOAT8_E4M3FNUZ=26 DT_FLOAT8_E4M3B11FNUZ=27 DT_FLOAT8_E5M2FNUZ=28 "
    "DT_INT4=29 DT_UINT4=30 DT_INT2=31 DT_UINT2=32 DT_FLOAT4_E2M1FN=33"
)
# Numbers of references, which are 100 higher.
_REFERENCES = re.sub(r"(\w+)=(\d+)", lambda one: f" {one[1]}_REF={int(one[2]) + 100}", _DATA_TYPES)
_ENUMS = {
    "tensorflow.DataType": "DT_INVALID=0 " + _DATA_TYPES + _REFERENCES,
    "tensorflow.error.Code": "OK=0 CANCELLED=1 UNKNOWN=2 INVALID_ARGUMENT=3 DEADLINE_EXCEEDED=4 NOT_FOUND=5 "
    "ALREADY_EXISTS=6 PERMISSION_DENIED=7 RESOURCE_EXHAUSTED=8 FAILED_PRECONDITION=9 ABORTED=10 OUT_OF_RANGE=11 "
    "UNIMPLEMENTED=12 INTERNAL=13 UNAVAILABLE=14 DATA_LOSS=15 UNAUTHENTICATED=16",
    "tensorflow.serving.State": "UNKNOWN=0 START=10 LOADING=20 AVAILABLE=30 UNLOADING=40 END=50",
    "tensorflow.serving.ModelType": "MODEL_TYPE_UNSPECIFIED=0 TENSORFLOW=1 OTHER=2",
}
_FILES = {
    "tensorflow.error": dict[str, str](),
    "tensorflow": {
        "Dim": "int64 size=1; string name=2",
        "TensorShapeProto": "repeated Dim dim=2; bool unknown_rank=3",
        "TensorProto": "DataType dtype=1; TensorShapeProto tensor_shape=2; int32 version_number=3; "
        "bytes tensor_content=4; repeated int32 half_val=13; repeated float float_val=5; repeated double double_val=6; "
        "repeated int32 int_val=7; repeated bytes string_val=8; repeated float scomplex_val=9; "
        "repeated int64 int64_val=10; repeated bool bool_val=11; repeated double dcomplex_val=12; "
        "repeated uint32 uint32_val=16; repeated uint64 uint64_val=17",
        "TensorInfo": "string name=1 in encoding; DataType dtype=2; TensorShapeProto tensor_shape=3",
        "BytesList": "repeated bytes value=1",
        "FloatList": "repeated float value=1",
        "Int64List": "repeated int64 value=1",
        "Feature": "BytesList bytes_list=1 in kind; FloatList float_list=2 in kind; Int64List int64_list=3 in kind",
        "Features": "map<Feature> feature=1",
        "Example": "Features features=1",
        "SignatureDef": "map<TensorInfo> inputs=1; map<TensorInfo> outputs=2; string method_name=3; "
        "map<TensorProto> defaults=4",
    },
    "tensorflow.serving": {
        "ModelSpec": "string name=1; google.protobuf.Int64Value version=2 in version_choice; "
        "string version_label=4 in version_choice; string signature_name=3",
        "PredictRequest": "ModelSpec model_spec=1; map<tensorflow.TensorProto> inputs=2; "
        "repeated string output_filter=3",
        "PredictResponse": "map<tensorflow.TensorProto> outputs=1; ModelSpec model_spec=2",
        "ExampleList": "repeated tensorflow.Example examples=1",
        "ExampleListWithContext": "repeated tensorflow.Example examples=1; tensorflow.Example context=2",
        "Input": "ExampleList example_list=1 in kind; ExampleListWithContext example_list_with_context=2 in kind",
        "Class": "string label=1; float score=2",
        "Classifications": "repeated Class classes=1",
        "ClassificationResult": "repeated Classifications classifications=1",
        "ClassificationRequest": "ModelSpec model_spec=1; Input input=2",
        "ClassificationResponse": "ClassificationResult result=1; ModelSpec model_spec=2",
        "Regression": "float value=1",
        "RegressionResult": "repeated Regression regressions=1",
        "RegressionRequest": "ModelSpec model_spec=1; Input input=2",
        "RegressionResponse": "RegressionResult result=1; ModelSpec model_spec=2",
        "InferenceTask": "ModelSpec model_spec=1; string method_name=2",
        "InferenceResult": "ModelSpec model_spec=1; ClassificationResult classification_result=2 in result; "
        "RegressionResult regression_result=3 in result",
        "MultiInferenceRequest": "repeated InferenceTask tasks=1; Input input=2",
        "MultiInferenceResponse": "repeated InferenceResult results=1",
        "SignatureDefMap": "map<tensorflow.SignatureDef> signature_def=1",
        "GetModelMetadataRequest": "ModelSpec model_spec=1; repeated string metadata_field=2",
        "GetModelMetadataResponse": "ModelSpec model_spec=1; map<google.protobuf.Any> metadata=2",
        "StatusProto": "tensorflow.error.Code error_code=1; string error_message=2",
        "ModelVersionStatus": "int64 version=1; State state=2; StatusProto status=3",
        "GetModelStatusRequest": "ModelSpec model_spec=1",
        "GetModelStatusResponse": "repeated ModelVersionStatus model_version_status=1",
        "Latest": "uint32 num_versions=1",
        "All": "",
        "Specific": "repeated int64 versions=1",
        "ServableVersionPolicy": "Latest latest=100 in policy_choice; All all=101 in policy_choice; "
        "Specific specific=102 in policy_choice",
        "LogCollectorConfig": "string type=1; string filename_prefix=2",
        "SamplingConfig": "double sampling_rate=1",
        "LoggingConfig": "LogCollectorConfig log_collector_config=1; SamplingConfig sampling_config=2",
        "ModelConfig": "string name=1; string base_path=2; ModelType model_type=3; string model_platform=4; "
        "ServableVersionPolicy model_version_policy=7; map<int64> version_labels=8; LoggingConfig logging_config=6",
        "ModelConfigList": "repeated ModelConfig config=1",
        "ModelServerConfig": "ModelConfigList model_config_list=1 in config; "
        "google.protobuf.Any custom_model_config=2 in config",
        "ReloadConfigRequest": "ModelServerConfig config=1; repeated string metric_names=2",
        "Metric": "string name=1; int64 int64_value_increase=2 in value_increase",
        "ReloadConfigResponse": "StatusProto status=1; repeated Metric metric=2",
        "ClassifyLog": "ClassificationRequest request=1",
        "RegressLog": "RegressionRequest request=1",
        "PredictLog": "PredictRequest request=1",
        "MultiInferenceLog": "MultiInferenceRequest request=1",
        "SessionRunLog": "",
        "PredictStreamedLog": "",
        "PredictionLog": "ClassifyLog classify_log=2 in log_type; RegressLog regress_log=3 in log_type; "
        "PredictLog predict_log=6 in log_type; PredictStreamedLog predict_streamed_log=7 in log_type; "
        "MultiInferenceLog multi_inference_log=4 in log_type; SessionRunLog session_run_log=5 in log_type",
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
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {name: getattr(_Field, f"TYPE_{name.upper()}") for name in
            ("float", "double", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes")}  # fmt: skip


def _set_type(field: _Field, type_name: str, package: str) -> None:
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        full_name = type_name if "." in type_name else f"{package}.{type_name}"
        field.type = _Field.TYPE_ENUM if full_name in _ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".{full_name}"


def _add_field(message: descriptor_pb2.DescriptorProto, declaration: str, package: str) -> None:
    """Adds a field: `[repeated] TYPE NAME=NUMBER [in ONEOF]`, or `map<TYPE> NAME=NUMBER` with string keys."""
    declaration, _, oneof = declaration.partition(" in ")
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
    if oneof:
        if oneof not in [one.name for one in message.oneof_decl]:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = len(message.oneof_decl) - 1
    _set_type(field, type_name, package)


def _build_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    dependencies = [any_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name]
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    for package, messages in _FILES.items():
        file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax="proto3")
        file.dependency.extend(dependencies)
        for full_name, values in _ENUMS.items():
            if full_name.rpartition(".")[0] == package:
                enum = file.enum_type.add(name=full_name.rpartition(".")[2])
                for name, number in (value.split("=") for value in values.split()):
                    enum.value.add(name=name, number=int(number))
        for name, declarations in messages.items():
            message = file.message_type.add(name=name)
            for declaration in filter(None, declarations.split("; ")):
                _add_field(message, declaration, package)
        pool.AddSerializedFile(file.SerializeToString())
        dependencies.append(file.name)
    return pool


_POOL = _build_pool()


def __getattr__(name: str) -> Any:
    """Returns the class of a message in `_FILES`."""
    package = next((package for package, messages in _FILES.items() if name in messages), None)
    if package is None:
        raise AttributeError(f"there is no message {name}")
    descriptor = _POOL.FindMessageTypeByName(f"{package}.{name}")
    return globals().setdefault(name, message_factory.GetMessageClass(descriptor))


def _names(enum: str) -> dict[int, str]:
    return {value.number: value.name for value in _POOL.FindEnumTypeByName(enum).values}


DATA_TYPES = _names("tensorflow.DataType")
VERSION_STATES = _names("tensorflow.serving.State")

PREDICT = "/tensorflow.serving.PredictionService/Predict"
GET_MODEL_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
GET_MODEL_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
