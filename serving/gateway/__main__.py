"""Serves the API routes of OpenAI, Cohere, text-embeddings-inference and Hugging Face in front of a model server.

python -m serving.gateway --target=127.0.0.1:8500 --model=sst2
python -m serving.gateway --model=embedder --port=8080 --api_key_file=keys.txt
"""

import logging
import sys
from dataclasses import dataclass

from serving.client.settings import ConnectionSettings
from serving.gateway.settings import GatewayOptions, listed
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(GatewayOptions, ConnectionSettings):
    """The command's flags."""

    model: tuple[str, ...] = setting(
        (), help="required: name of a model; give the flag several times, or a comma-separated list, for several"
    )
    port: int = setting(8080, help="port to listen on; 0 chooses a free one", at_least=0, at_most=65535)
    bind_address: str = setting("127.0.0.1", help="address to listen on; 0.0.0.0 listens on every network")
    api_key_file: str = setting("", help="file of API keys, one a line; empty: no key is needed")


def main(settings: GatewaySettings) -> None:
    """Serves until it is stopped."""
    _log_to_stderr()
    if not (models := listed(settings.model)):
        raise UserError("--model=NAME must be given: the model server's name of the model")
    try:
        from serving import http_protocol
        from serving.gateway import app, keys
    except ModuleNotFoundError as error:
        raise UserError(f"the gateway needs {error.name}: pip install '.[gateway]'") from error

    known = keys.Keys.read(settings.api_key_file) if settings.api_key_file else None
    http_protocol.raise_file_limit()
    gateway = app.Gateway(settings.connection(attempts=2), models, known, settings)
    server = app.GatewayServer(gateway, settings.bind_address, settings.port)
    print(f"answering at http://{settings.bind_address}:{server.port}/; Ctrl-C stops", flush=True)
    server.run()


def _log_to_stderr() -> None:
    # absl has a handler of its own on the root logger, and shows warnings alone.
    handler, log = logging.StreamHandler(sys.stderr), logging.getLogger("serving.gateway")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def run() -> None:
    """Runs the command."""
    run_main(main, GatewaySettings)


if __name__ == "__main__":
    run()
