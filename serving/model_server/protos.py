"""The few configuration messages that tensorflow-serving-api leaves out, declared so that the same text files parse.

Field names and numbers are those of ssl_config.proto, monitoring_config.proto and session_bundle_config.proto.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto
_WRAPPERS = wrappers_pb2.DESCRIPTOR.name
_INT64 = ".google.protobuf.Int64Value"
_PACKAGE = "tensorflow.serving"

# message -> [(field, number, scalar type or message name)]
_MESSAGES: dict[str, list[tuple[str, int, int | str]]] = {
    "SSLConfig": [
        ("server_key", 1, _FIELD.TYPE_STRING),
        ("server_cert", 2, _FIELD.TYPE_STRING),
        ("custom_ca", 3, _FIELD.TYPE_STRING),
        ("client_verify", 4, _FIELD.TYPE_BOOL),
    ],
    "PrometheusConfig": [("enable", 1, _FIELD.TYPE_BOOL), ("path", 2, _FIELD.TYPE_STRING)],
    "MonitoringConfig": [("prometheus_config", 1, f".{_PACKAGE}.PrometheusConfig")],
    "BatchingParameters": [
        ("max_batch_size", 1, _INT64),
        ("batch_timeout_micros", 2, _INT64),
        ("max_enqueued_batches", 3, _INT64),
        ("num_batch_threads", 4, _INT64),
        ("thread_pool_name", 5, ".google.protobuf.StringValue"),
        ("allowed_batch_sizes", 6, _FIELD.TYPE_INT64),
        ("pad_variable_length_inputs", 7, _FIELD.TYPE_BOOL),
        ("enable_large_batch_splitting", 8, ".google.protobuf.BoolValue"),
        ("max_execution_batch_size", 9, _INT64),
    ],
}
_REPEATED = {"allowed_batch_sizes"}


def _declare() -> dict[str, type]:
    file = descriptor_pb2.FileDescriptorProto(
        name="serving/model_server/configuration.proto", package=_PACKAGE, syntax="proto3", dependency=[_WRAPPERS]
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            field = message.field.add(name=field_name, number=number, label=_FIELD.LABEL_OPTIONAL)
            if field_name in _REPEATED:
                field.label = _FIELD.LABEL_REPEATED
            if isinstance(kind, str):
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, kind
            else:
                field.type = kind
    pool = descriptor_pool.Default()
    pool.Add(file)
    names = [f"{_PACKAGE}.{name}" for name in _MESSAGES]
    return {n.rsplit(".", 1)[1]: message_factory.GetMessageClass(pool.FindMessageTypeByName(n)) for n in names}


_CLASSES = _declare()
SSLConfig = _CLASSES["SSLConfig"]
MonitoringConfig = _CLASSES["MonitoringConfig"]
BatchingParameters = _CLASSES["BatchingParameters"]
