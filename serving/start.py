"""Exports a model if needed, and serves it with OpenAI's API, REST and gRPC.

python -m serving.start --model=sst2
python -m serving.start --model=sentence-transformers/all-MiniLM-L6-v2 --port=8080
"""

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert_tf.choices import ALLOW_PICKLE_HELP
from serving.choices import COMPUTE
from serving.export import ExportSettings, export
from serving.gateway.keys import Keys
from serving.manifest import MANIFEST, read_manifest, versions_of
from serving.model_server.flags import LOOPBACK, OPEN_PORTS, OPEN_PORTS_HELP, is_open
from tfrecords.base.errors import UserError
from tfrecords.base.files import locked, output_folder, whole_path
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

_REAL = "tensorflow_model_server"
_TERMINATION_S = 25


@dataclass(frozen=True, kw_only=True)
class StartSettings(CheckedSettings):
    """The model to start, and its ports."""

    model: str = setting(help="folder of a model or of an export, or the name of a model on the Hugging Face hub")
    name: str = setting("", help="name by which clients ask for the model; empty: the name of its folder")
    port: int = setting(
        8080, help="HTTP port of the gateway's API and of its page for trying the model", at_least=1, at_most=65535
    )
    grpc_port: int = setting(8500, help="port of TensorFlow Serving's gRPC API", at_least=1, at_most=65535)
    rest_api_port: int = setting(8501, help="port of TensorFlow Serving's REST API; 0: none", at_least=0, at_most=65535)
    bind_address: str = setting("127.0.0.1", help="address to listen on, such as 0.0.0.0 for every network")
    api_key_file: str = setting("", help="file of API keys, one a line; empty: everyone may ask")
    open_ports: str = setting("", help=f"{OPEN_PORTS_HELP} --api_key_file", choices=OPEN_PORTS)
    output_dir: str = setting("servables", help="folder for the exported model; later starts use the export again")
    compute: str = setting(
        "auto", help="arithmetic of the export; auto: bfloat16 where this CPU has it", choices=(*COMPUTE, "auto")
    )
    max_seq_length: int = setting(0, help="longest row in tokens; 0: the model's own", at_least=0)
    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)

    def is_open(self, port: str) -> bool:
        return is_open(port, self.api_key_file, self.open_ports)

    def __post_init__(self):
        super().__post_init__()
        ports = {}
        for name in ("port", "grpc_port", "rest_api_port"):
            if (port := getattr(self, name)) and (other := ports.setdefault(port, name)) != name:
                raise UserError(f"--{other} and --{name} are both {port}; give each a port of its own")


def find_servable(settings: StartSettings) -> Path:
    """Exports the model if necessary, and returns its base path for a server.

    Raises UserError if there is no such model, or export fails.
    """
    given = Path(settings.model)
    if (given / "saved_model.pb").is_file():
        raise UserError(
            f"--model={given} is a version of an export; give its parent folder, '{given.resolve().parent}'"
        )
    if versions_of(given):
        return given
    base = Path(settings.output_dir) / (settings.name or _name_of(settings.model))
    asked = ExportSettings(
        model=whole_path(settings.model),
        output_dir=str(base),
        inputs="text",
        compute=settings.compute,
        max_seq_length=settings.max_seq_length,
        allow_pickle=settings.allow_pickle,
    )
    # Of two first starts at the same moment, the second sees what the first exported.
    with output_folder(base), locked(base, wait=True):
        return _exported(base, asked)


def _exported(base: Path, asked: ExportSettings) -> Path:
    # A server answers by the latest version alone.
    for version in versions_of(base)[-1:]:
        exported = read_manifest(version).get("export", {})
        if whole_path(exported.get("model", asked.model)) != asked.model:
            raise UserError(
                f"'{base}' holds an export of '{exported['model']}', which a server may be using; give another --name "
                "or --output_dir"
            )
        if _is_export_of(version, exported, asked):
            print(f"using {version}, which was exported before", file=sys.stderr)
            return base
    print(f"exported {export(asked)}", file=sys.stderr)
    return base


def _is_export_of(version: Path, exported: dict[str, Any], asked: ExportSettings) -> bool:
    without_effect = ("model", "output_dir", "allow_pickle")
    same = {name: value for name, value in dataclasses.asdict(asked).items() if name not in without_effect}
    if not exported or not same.items() <= exported.items():
        return False
    place = Path(asked.model)
    states = [path.stat() for path in (place, *place.rglob("*"))] if place.exists() else []
    # A copy or a renamed folder keeps the first of these times.
    written = max((max(state.st_mtime, state.st_ctime) for state in states), default=0.0)
    return written <= (version / MANIFEST).stat().st_mtime


def _name_of(model: str) -> str:
    return Path(model).resolve().name.removesuffix(".keras") if Path(model).exists() else model.split("/")[-1]


def commands(settings: StartSettings, base: Path, socket_path: str) -> list[list[str]]:
    """Returns the commands to run: tensorflow_model_server and the gateway, or the embedded server."""
    name = settings.name or base.resolve().name
    server = [f"--model_name={name}", f"--model_base_path={base.resolve()}"]
    python = [sys.executable, "-m"]
    if real := shutil.which(_REAL):
        # It listens on every network interface: a port that must not be open there has to be off.
        is_open = settings.is_open("grpc")
        target = f"127.0.0.1:{settings.grpc_port}" if is_open else f"unix:{socket_path}"
        server += [f"--port={settings.grpc_port}"] if is_open else ["--port=0", f"--grpc_socket_path={socket_path}"]
        server += [f"--rest_api_port={settings.rest_api_port if settings.is_open('rest') else 0}"]
        gateway = [f"--target={target}", f"--model={name}", f"--port={settings.port}"]
        gateway += [f"--bind_address={settings.bind_address}"]
        gateway += [f"--api_key_file={settings.api_key_file}"] if settings.api_key_file else []
        return [[real, *server], [*python, "serving.gateway", *gateway]]
    server += [f"--port={settings.grpc_port}", f"--rest_api_port={settings.rest_api_port}"]
    server += [f"--bind_address={settings.bind_address}", f"--gateway_port={settings.port}"]
    if settings.api_key_file:
        server += [f"--gateway_api_key_file={settings.api_key_file}", f"--open_ports={settings.open_ports}"]
    return [[*python, "serving.model_server", *server]]


def run_together(started: list[list[str]]) -> int:
    """Runs processes until one ends or a signal comes; then ends the others.

    Returns the status of the first that ended; 0 after SIGTERM or Ctrl-C.
    """
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
    # In groups of their own: Ctrl-C reaches this process alone, which ends the gateway first.
    processes = [subprocess.Popen(command, start_new_session=True) for command in started]
    status = None
    while not asked and status is None:
        time.sleep(0.1)
        status = next((process.poll() for process in processes if process.poll() is not None), None)
    for process in reversed(processes):
        process.terminate()
        try:
            process.wait(_TERMINATION_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return 0 if status is None else status


# Before minutes of exporting; and the real server would share a taken gRPC port, so that each gets some requests.
def _check_ports(settings: StartSettings) -> None:
    for name in ("port", "grpc_port", "rest_api_port"):
        if port := getattr(settings, name):
            address = settings.bind_address if name == "port" or settings.is_open(name.split("_")[0]) else LOOPBACK
            try:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                socket.create_server((address, port), family=family).close()
            except OSError as error:
                message = f"--{name}={port} cannot be used on {address}: {error.strerror}; choose another"
                raise UserError(message) from error


def main(settings: StartSettings) -> None:
    """Exports the model if needed, and runs the servers."""
    _check_ports(settings)
    if settings.api_key_file:
        Keys.read(settings.api_key_file)
    base = find_servable(settings)
    # No alarm (B104): the address is compared, and bound only where the user gave it.
    host = settings.bind_address if settings.bind_address != "0.0.0.0" else "127.0.0.1"  # nosec B104
    print(f"API and page: http://{host}:{settings.port}/ (once the model is loaded); Ctrl-C stops", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        started = commands(settings, base, f"{folder}/grpc")
        is_real = os.path.basename(started[0][0]) == _REAL
        ports = {"grpc": settings.grpc_port, "rest": settings.rest_api_port}
        open_ports = " and ".join(str(port) for name, port in ports.items() if port and settings.is_open(name))
        if settings.bind_address != "0.0.0.0" and is_real and open_ports:  # nosec B104
            print(
                f"warning: {_REAL} has no --bind_address: ports {open_ports} are open on every network interface; close"
                " them by a firewall or a container if only the gateway is to be reached",
                file=sys.stderr,
            )
        if settings.api_key_file and (closed := [name for name in ports if not settings.is_open(name)]):
            where = "off" if is_real else "for this machine alone"
            print(f"the ports that ask for no key are {where} ({', '.join(closed)}); see --open_ports", file=sys.stderr)
        status = run_together(started)
    sys.exit(status)


def run() -> None:
    """Runs the command."""
    run_main(main, StartSettings)


if __name__ == "__main__":
    run()
