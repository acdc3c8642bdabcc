"""Serves what `serving.export --engine=litert` wrote with OpenAI's API, REST and gRPC, without TensorFlow.

albert-client start --folder=models/sst2
albert-client start --folder=models/sst2 --port=8080 --bind_address=0.0.0.0 --api_key_file=keys.txt
"""

import logging
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from serving.lite.description import FILE, holds_version
from serving.model_server.flags import LOOPBACK, OPEN_PORTS, OPEN_PORTS_HELP, is_open
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting


@dataclass(frozen=True, kw_only=True)
class PortSettings(CheckedSettings):
    """The ports of a model server and its gateway."""

    name: str = setting("", help="name by which clients ask for the model; empty: the name of its folder")
    port: int = setting(
        8080, help="HTTP port of the gateway's API and of its page for trying the model", at_least=1, at_most=65535
    )
    grpc_port: int = setting(8500, help="port of TensorFlow Serving's gRPC API", at_least=1, at_most=65535)
    rest_api_port: int = setting(8501, help="port of TensorFlow Serving's REST API; 0: none", at_least=0, at_most=65535)
    bind_address: str = setting(LOOPBACK, help="address to listen on, such as 0.0.0.0 for every network")
    api_key_file: str = setting("", help="file of API keys, one a line; empty: everyone may ask")
    open_ports: str = setting("", help=f"{OPEN_PORTS_HELP} --api_key_file", choices=OPEN_PORTS)

    def __post_init__(self):
        super().__post_init__()
        ports = {}
        for name in ("port", "grpc_port", "rest_api_port"):
            if (port := getattr(self, name)) and (other := ports.setdefault(port, name)) != name:
                raise UserError(f"--{other} and --{name} are both {port}; give each a port of its own")

    def is_open(self, port: str) -> bool:
        return is_open(port, self.api_key_file, self.open_ports)

    def check_ports(self) -> None:
        """Raises UserError if a port is taken: before minutes of exporting, and before the real server shares it."""
        for name in ("port", "grpc_port", "rest_api_port"):
            if port := getattr(self, name):
                address = self.bind_address if name == "port" or self.is_open(name.split("_")[0]) else LOOPBACK
                try:
                    family = socket.AF_INET6 if ":" in address else socket.AF_INET
                    socket.create_server((address, port), family=family).close()
                except OSError as error:
                    message = f"--{name}={port} cannot be used on {address}: {error.strerror}; choose another"
                    raise UserError(message) from error

    def served_name(self, base: Path) -> str:
        """Returns the name by which clients ask; that of a link, and not of the folder behind it."""
        return self.name or os.path.basename(os.path.abspath(base))

    def model_flags(self, base: Path) -> list[str]:
        """Returns the flags that name the model to a server."""
        return [f"--model_name={self.served_name(base)}", f"--model_base_path={base.resolve()}"]

    def server_flags(self, base: Path) -> list[str]:
        """Returns the flags of `serving.model_server` for a model and its gateway."""
        flags = [*self.model_flags(base), f"--port={self.grpc_port}", f"--rest_api_port={self.rest_api_port}"]
        flags += [f"--bind_address={self.bind_address}", f"--gateway_port={self.port}"]
        # By default two cores refuse an eighth client, which would wait for milliseconds.
        flags += ["--grpc_max_threads=64"]
        if self.api_key_file:
            flags += [f"--gateway_api_key_file={self.api_key_file}", f"--open_ports={self.open_ports}"]
        return flags

    def say_address(self) -> None:
        # No alarm (B104): the address is compared, and bound only where the user gave it.
        host = self.bind_address if self.bind_address != "0.0.0.0" else LOOPBACK  # nosec B104
        print(f"API and page: http://{host}:{self.port}/ (once the model is loaded); Ctrl-C stops", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class LightStartSettings(PortSettings):
    """The folder to serve, and its ports."""

    folder: str = setting(help="folder of an export, with a numbered folder for each version")


def main(settings: LightStartSettings) -> None:
    """Serves until it is stopped."""
    base = Path(settings.folder)
    refuse({
        f"--folder={base} is a version of an export; give its parent folder, '{base.resolve().parent}'":
            (base / FILE).is_file(),
        f"'{base}' holds no version for this server; on a machine with albert-tf, "
        "`albert-tf export --engine=litert --inputs=text --model=MODEL --output_dir=FOLDER` writes one":
            not holds_version(base),
    })  # fmt: skip
    try:
        from serving.model_server import __main__ as model_server
    except ModuleNotFoundError as error:
        raise UserError(f"the server needs {error.name}: pip install './client[serve]'") from error
    settings.check_ports()
    settings.say_address()
    # The server writes its own log, and not by the handler of absl, which has shown warnings alone.
    logging.getLogger().handlers.clear()
    sys.exit(model_server.main(settings.server_flags(base)))


def run() -> None:
    """Runs the command."""
    run_main(main, LightStartSettings)


if __name__ == "__main__":
    run()
