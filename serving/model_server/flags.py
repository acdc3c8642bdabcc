"""tensorflow_model_server's command line: its names, its defaults and its way of reading them."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_INT32_MAX = 2**31 - 1
_NOT_HERE = "Accepted and without effect here."


def _flag(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Options:
    """The value of every flag; `--name=value` sets the field `name`."""

    port: int = _flag(8500, "TCP port of the gRPC API; 0 = off")
    grpc_socket_path: str = _flag("", "UNIX socket on which the gRPC API listens too")
    rest_api_port: int = _flag(0, "TCP port of the REST API; 0 = off. Must differ from --port")
    rest_api_num_threads: int = _flag(4 * CPUS, "REST requests worked on at once")
    rest_api_timeout_in_ms: int = _flag(30000, "Time limit of a REST request")
    rest_api_enable_cors_support: bool = _flag(False, "Answer cross-origin requests of browsers")
    model_name: str = _flag("default", "Name of the model (ignored with --model_config_file)")
    model_base_path: str = _flag("", "Absolute folder of the model; its children 1/, 2/, ... are versions")
    model_config_file: str = _flag("", "Text ModelServerConfig that lists several models, policies and labels")
    model_config_file_poll_wait_seconds: int = _flag(0, "Pause between readings of --model_config_file; 0 = read once")
    enable_batching: bool = _flag(False, "Join requests into batches")
    batching_parameters_file: str = _flag("", "Text BatchingParameters; needs --enable_batching")
    enable_per_model_batching_parameters: bool = _flag(
        False, "Take batching_params.pbtxt from each version's folder; a model without it is not batched"
    )
    allow_version_labels_for_unavailable_models: bool = _flag(
        False, "Let a new label name a version that is not available (needed for labels at start)"
    )
    file_system_poll_wait_seconds: int = _flag(1, "Pause between looks for versions; 0 = once, negative = never")
    num_load_threads: int = _flag(0, "Versions loaded at once after the start; 0 = one")
    num_unload_threads: int = _flag(0, "Versions unloaded at once; 0 = one")
    max_num_load_retries: int = _flag(5, "Further attempts at a version that does not load")
    load_retry_interval_micros: int = _flag(60_000_000, "Pause between such attempts")
    flush_filesystem_caches: bool = _flag(True, _NOT_HERE)
    tensorflow_session_parallelism: int = _flag(0, "Threads of both kinds for a session; 0 = by itself")
    tensorflow_intra_op_parallelism: int = _flag(0, "Threads within one operation; 0 = by itself")
    tensorflow_inter_op_parallelism: int = _flag(0, "Operations run at once; 0 = by itself")
    tensorflow_session_config_file: str = _flag("", "Text tensorflow.ConfigProto for every session")
    platform_config_file: str = _flag("", _NOT_HERE + " The one platform is tensorflow.")
    per_process_gpu_memory_fraction: float = _flag(0.0, "Share of a GPU's memory to take; 0 = TensorFlow's own choice")
    saved_model_tags: str = _flag("serve", "Comma-separated tags of the graph to load from a SavedModel")
    grpc_channel_arguments: str = _flag("", "Comma-separated key=value arguments of the gRPC server")
    grpc_max_threads: int = _flag(
        4 * CPUS, "One more than the gRPC requests served at once; what comes above is refused"
    )
    enable_model_warmup: bool = _flag(True, "Replay assets.extra/tf_serving_warmup_requests before serving a version")
    num_request_iterations_for_warmup: int = _flag(0, "Times that each warm-up request is replayed, if above 0")
    monitoring_config_file: str = _flag("", "Text MonitoringConfig: Prometheus metrics on the REST port")
    ssl_config_file: str = _flag("", "Text SSLConfig (PEM texts) for the gRPC port")
    use_alts_credentials: bool = _flag(False, "Google ALTS for the gRPC port: refused here")
    remove_unused_fields_from_bundle_metagraph: bool = _flag(True, _NOT_HERE)
    prefer_tflite_model: bool = _flag(False, "Serve VERSION/model.tflite where it is there")
    num_tflite_pools: int = _flag(CPUS, "Pools of TensorFlow Lite interpreters, per model")
    num_tflite_interpreters_per_pool: int = _flag(1, "Interpreters in each such pool")
    enable_signature_method_name_check: bool = _flag(False, "Refuse signatures whose method is not TF Serving's own")
    xla_cpu_compilation_enabled: bool = _flag(False, "Allow XLA on CPUs; without it a jit_compile model fails")
    xla_gpu_compilation_enabled: bool = _flag(False, "Allow XLA on GPUs")
    enable_profiler: bool = _flag(True, _NOT_HERE + " No profiler service is offered.")
    thread_pool_factory_config_file: str = _flag("", _NOT_HERE)
    mixed_precision: str = _flag("", "bfloat16: let Grappler rewrite the graph to it")
    skip_initialize_tpu: bool = _flag(False, _NOT_HERE)
    enable_grpc_healthcheck_service: bool = _flag(False, "Offer grpc.health.v1.Health")
    enable_serialization_as_tensor_content: bool = _flag(False, "Answer with tensor_content instead of *_val fields")
    version: bool = _flag(False, "Print the version and leave")
    help: bool = _flag(False, "Print this text and leave")
    bind_address: str = _flag("127.0.0.1", "Not in the real server: address to listen on; 0.0.0.0 = every network")
    rest_api_max_body_bytes: int = _flag(
        2**27, "Not in the real server: largest REST body taken, inflated ones too; larger ones are refused with 413"
    )
    drain_seconds: float = _flag(
        20.0, "Not in the real server: how long SIGTERM waits for requests that run; what runs longer is cut off"
    )
    access_log: str = _flag("", "Not in the real server: file for one JSON line per request; - = standard output")


_FIELDS = {field.name: field for field in dataclasses.fields(Options)}


class BadFlag(ValueError):
    """A known flag with a value it cannot have."""


def parse(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Reads `--name=value` and bare `--bool`.

    Returns the options and what was not understood (the server says so and goes on). Raises BadFlag.
    """
    values: dict[str, Any] = {}
    unknown = []
    for argument in arguments:
        name, equals, text = argument.removeprefix("--").partition("=")
        field = _FIELDS.get(name) if argument.startswith("--") else None
        if field is None or (not equals and field.type is not bool):
            unknown.append(argument)
        else:
            values[name] = _value(field, text if equals else "true")
    return Options(**values), unknown


def _value(field: dataclasses.Field, text: str) -> Any:
    if field.type is str:
        return text
    if field.type is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise BadFlag(f"--{field.name} must be true or false, not '{text}'")
        return text.lower() in ("true", "1")
    try:
        value = field.type(text)
    except ValueError:
        raise BadFlag(f"--{field.name} must be {_KINDS[field.type]}, not '{text}'") from None
    if field.type is int and field.name != "load_retry_interval_micros" and abs(value) > _INT32_MAX:
        raise BadFlag(f"--{field.name}={text} does not fit into 32 bits")
    return value


_KINDS = {int: "a whole number", float: "a number"}

_INTRODUCTION = """\
usage: python -m serving.model_server --model_name=NAME --model_base_path=/ABSOLUTE/FOLDER [--flag=value ...]

TensorFlow Serving's gRPC and REST contract on the pip-installed TensorFlow: for development, tests, demonstrations
and small loads on one machine. In production run the real tensorflow_model_server with the same flags
(serving/deploy/). What differs: it listens on the loopback address unless --bind_address says otherwise, has no
profiler service and no remote file systems, and answers from Python, which costs a fraction of
a millisecond per request. Flags are written --name=value.

Flags:
"""


def usage() -> str:
    """Returns the text of --help."""
    lines = []
    for field in _FIELDS.values():
        default = f'"{field.default}"' if field.type is str else str(field.default).lower()
        lines.append(f"  --{field.name}={default}  [{field.type.__name__}] {field.metadata['help']}")
    return _INTRODUCTION + "\n".join(lines) + "\n"
