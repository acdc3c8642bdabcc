"""tensorflow_model_server's flags and their parser."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, ClassVar

from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import cores
from tfrecords.base.script import command_name
from tfrecords.base.settings import CheckedSettings, setting

_INT32_MAX = 2**31 - 1
_PORTS = 65535
LOOPBACK = "127.0.0.1"
# The ports that know no keys, as --open_ports names them; with keys at the gateway, others must not be a way around it.
OPEN_PORTS = ("", "grpc", "rest", "grpc,rest")
OPEN_PORTS_HELP = "ports (grpc, rest or grpc,rest) to open on --bind_address without keys in spite of"
# Flags of the real server that are accepted, and have no effect here.
_WITHOUT_EFFECT = {
    "enable_profiler", "flush_filesystem_caches", "num_tflite_interpreters_per_pool", "num_tflite_pools",
    "platform_config_file", "skip_initialize_tpu", "remove_unused_fields_from_bundle_metagraph",
    "thread_pool_factory_config_file", "xla_cpu_compilation_enabled", "xla_gpu_compilation_enabled",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ServerOptions(CheckedSettings):
    """The values of all flags."""

    groups: ClassVar[dict[str, str]] = {
        "Models": "model_name model_base_path model_config_file file_system_poll_wait_seconds enable_model_warmup",
        "Ports": "port rest_api_port bind_address ssl_config_file gateway_port gateway_api_key_file open_ports",
        "Load": "enable_batching batching_parameters_file tensorflow_intra_op_parallelism rest_api_timeout_in_ms "
        "grpc_max_threads rest_api_max_body_bytes drain_seconds",
        "Monitoring": "monitoring_config_file access_log enable_grpc_healthcheck_service",
        "Help": "version help helpfull",
    }

    port: int = setting(8500, help="TCP port of the gRPC API; 0 = off", at_least=0, at_most=_PORTS)
    grpc_socket_path: str = setting("", help="UNIX socket on which the gRPC API also listens")
    rest_api_port: int = setting(
        0, help="TCP port of the REST API, another than --port; 0 = off", at_least=0, at_most=_PORTS
    )
    rest_api_num_threads: int = setting(4 * cores(), help="REST requests processed at once", at_least=1)
    rest_api_timeout_in_ms: int = setting(30000, help="Time limit of a REST request")
    rest_api_enable_cors_support: bool = setting(False, help="Answer cross-origin requests of browsers")
    model_name: str = setting("default", help="Name of the model (ignored with --model_config_file)")
    model_base_path: str = setting("", help="Absolute folder of the model; its children 1/, 2/, ... are versions")
    model_config_file: str = setting(
        "", help="Text-format ModelServerConfig that lists several models, policies and labels"
    )
    model_config_file_poll_wait_seconds: int = setting(
        0, help="Seconds between readings of --model_config_file; 0 = read once"
    )
    enable_batching: bool = setting(False, help="Join requests into batches")
    batching_parameters_file: str = setting("", help="Text-format BatchingParameters; needs --enable_batching")
    enable_per_model_batching_parameters: bool = setting(
        False, help="Read batching_params.pbtxt from each version's folder; a model without it is not batched"
    )
    allow_version_labels_for_unavailable_models: bool = setting(
        False, help="Let a new label name a version that is not available (needed for labels at start)"
    )
    file_system_poll_wait_seconds: int = setting(
        1, help="Seconds between checks for new versions; 0 = once, negative = never"
    )
    num_load_threads: int = setting(0, help="Versions loaded at once after the start; 0 = one")
    num_unload_threads: int = setting(0, help="Versions unloaded at once; 0 = one")
    max_num_load_retries: int = setting(5, help="Further attempts to load a version after the first one fails")
    load_retry_interval_micros: int = setting(60_000_000, help="Microseconds between attempts to load a version")
    tensorflow_session_parallelism: int = setting(
        0, help="Intra-op and inter-op threads for a session; 0 = chosen by TensorFlow"
    )
    tensorflow_intra_op_parallelism: int = setting(0, help="Threads within one operation; 0 = chosen by TensorFlow")
    tensorflow_inter_op_parallelism: int = setting(0, help="Operations run at once; 0 = chosen by TensorFlow")
    tensorflow_session_config_file: str = setting("", help="Text-format tensorflow.ConfigProto for every session")
    per_process_gpu_memory_fraction: float = setting(
        0.0, help="Share of a GPU's memory to take; 0 = chosen by TensorFlow"
    )
    saved_model_tags: str = setting("serve", help="Comma-separated tags of the graph to load from a SavedModel")
    grpc_channel_arguments: str = setting("", help="Comma-separated key=value arguments of the gRPC server")
    grpc_max_threads: int = setting(
        4 * cores(),
        help="Largest number of gRPC requests served at once, plus one; further requests are refused",
        at_least=1,
    )
    enable_model_warmup: bool = setting(
        True, help="Replay assets.extra/tf_serving_warmup_requests before serving a version"
    )
    num_request_iterations_for_warmup: int = setting(0, help="Times that each warm-up request is replayed, if above 0")
    monitoring_config_file: str = setting("", help="Text-format MonitoringConfig: Prometheus metrics on the REST port")
    ssl_config_file: str = setting("", help="Text-format SSLConfig (PEM texts) for the gRPC port")
    use_alts_credentials: bool = setting(False, help="Google ALTS for the gRPC port; not supported here")
    prefer_tflite_model: bool = setting(False, help="Serve a version's LiteRT file, where it has a SavedModel, too")
    enable_signature_method_name_check: bool = setting(
        False, help="Refuse signatures whose method is not TF Serving's own"
    )
    mixed_precision: str = setting("", help="bfloat16: let Grappler rewrite the graph to it")
    enable_grpc_healthcheck_service: bool = setting(False, help="Offer grpc.health.v1.Health")
    enable_serialization_as_tensor_content: bool = setting(
        False, help="Answer with tensor_content instead of *_val fields"
    )
    version: bool = setting(False, help="Print the version and exit")
    help: bool = setting(False, help="Print the usual flags and exit")
    helpfull: bool = setting(False, help="Print all flags and exit")
    bind_address: str = setting(
        "127.0.0.1", help="Not in the real server: address to listen on; 0.0.0.0 = every network"
    )
    rest_api_max_body_bytes: int = setting(
        2**27,
        help="Not in the real server: largest REST body in bytes, also after decompression; larger ones are "
        "refused with 413",
        at_least=0,
    )
    drain_seconds: float = setting(
        20.0,
        help="Not in the real server: seconds that SIGTERM waits for running requests; longer ones are cut off",
        at_least=0,
        at_most=24 * 60 * 60,
    )
    access_log: str = setting(
        "", help="Not in the real server: file for one JSON line per request; - = standard output"
    )
    gateway_port: int = setting(
        0,
        help="Not in the real server: port of the gateway (routes of OpenAI and others); 0 = off",
        at_least=0,
        at_most=_PORTS,
    )
    gateway_api_key_file: str = setting("", help="Not in the real server: file of API keys for the gateway, one a line")
    open_ports: str = setting(
        "", help=f"Not in the real server: {OPEN_PORTS_HELP} --gateway_api_key_file", choices=OPEN_PORTS
    )

    def address(self, port: str) -> str:
        """Returns the address on which the port "grpc" or "rest" listens."""
        return self.bind_address if is_open(port, self.gateway_api_key_file, self.open_ports) else LOOPBACK


def is_open(port: str, key_file: str, open_ports: str) -> bool:
    """Returns whether the port "grpc" or "rest" listens where the gateway does, and not on this machine alone."""
    return not key_file or port in open_ports


_FIELDS = {field.name: field for field in dataclasses.fields(ServerOptions)}


def parse(arguments: Sequence[str]) -> tuple[ServerOptions, list[str]]:
    """Reads `--name=value` and bare `--bool`; returns the options and the unknown arguments.

    >>> options, unknown = parse(["--port=8501", "--enable_batching", "--bogus=1"])
    >>> options.port, options.enable_batching, unknown
    (8501, True, ['--bogus=1'])

    Raises:
        UserError: a known flag has no value or an invalid one.
    """
    values: dict[str, Any] = {}
    unknown = []
    for argument in arguments:
        name, equals, text = argument.removeprefix("--").partition("=")
        if name in _WITHOUT_EFFECT and argument.startswith("--"):
            continue
        field = _FIELDS.get(name) if argument.startswith("--") else None
        if field is None:
            unknown.append(argument)
        elif not equals and field.type is not bool:
            # The real server reports `--port` and `8501` as unknown, and goes on with its default port.
            raise UserError(f"--{name} has no value: write --{name}=VALUE, with '=' and without a space")
        else:
            values[name] = _value(field, text if equals else "true")
    return ServerOptions(**values), unknown


def _value(field: dataclasses.Field, text: str) -> Any:
    if field.type is str:
        return text
    if field.type is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise UserError(f"--{field.name} must be true or false, not '{text}'")
        return text.lower() in ("true", "1")
    try:
        value = field.type(text)
    except ValueError:
        raise UserError(f"--{field.name} must be {_KINDS[field.type]}, not '{text}'") from None
    if field.type is int and field.name != "load_retry_interval_micros" and abs(value) > _INT32_MAX:
        raise UserError(f"--{field.name}={text} does not fit into 32 bits")
    return value


_KINDS = {int: "a whole number", float: "a number"}

MODULE = "serving.model_server"
ABOUT = f"""\
Serves exported models over gRPC and REST, with the flags and the answers of tensorflow_model_server.

It runs on the pip-installed TensorFlow. Use it for development, tests, demonstrations and small loads on one machine.
In production run the real tensorflow_model_server with the same flags. Unlike that one, it listens
on the loopback address unless --bind_address is given, has no profiler service and no remote file systems, and
answers from Python, which costs 0.5 to 2.5 ms per request.

python -m {MODULE} --port=8500 --rest_api_port=8501 --model_name=sst2 --model_base_path=$PWD/models/sst2
python -m {MODULE} --model_config_file=models.config --gateway_port=8080"""


def usage(wrong: str = "") -> str:
    """Returns a usage line, with the flag most similar to `wrong`."""
    near = difflib.get_close_matches(wrong.lstrip("-").partition("=")[0], _FIELDS, n=1)
    advice = f"did you mean --{near[0]}? " if near else ""
    line = f"usage: {command_name(MODULE)} --model_name=NAME --model_base_path=/ABSOLUTE/FOLDER [--flag=value ...]"
    return f"{line} ({advice}--help lists the flags)"
