"""Serves the API routes of OpenAI, Cohere, text-embeddings-inference and Hugging Face in front of a model server.

python -m serving.gateway --target=127.0.0.1:8500 --model=sst2
python -m serving.gateway --model=embedder --port=8080 --api_key_file=keys.txt
"""

import logging
import re
import sys
from dataclasses import dataclass

from serving.client.settings import ConnectionSettings
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(ConnectionSettings):
    """The command's flags."""

    model: tuple[str, ...] = setting(
        (), help="required: name of a model; give the flag several times, or a comma-separated list, for several"
    )
    port: int = setting(8080, help="port to listen on; 0 chooses a free one", at_least=0, at_most=65535)
    bind_address: str = setting("127.0.0.1", help="address to listen on; 0.0.0.0 listens on every network")
    api_key_file: str = setting("", help="file of API keys, one a line; empty: no key is needed")
    max_batch_tokens: int = setting(
        1024, help="largest number of tokens in a batch; a longer row is sent alone", at_least=1
    )
    max_batch_rows: int = setting(256, help="largest number of rows in a batch", at_least=1)
    max_in_flight: int = setting(
        2,
        help="largest number of batches at the model server at the same time; each model always has one place",
        at_least=1,
    )
    max_queued_tokens: int = setting(
        65536, help="largest number of a model's tokens in the queue; beyond it requests get 429", at_least=1
    )
    max_inputs: int = setting(2048, help="largest number of texts in a request", at_least=1)
    max_body_bytes: int = setting(8 * 2**20, help="largest size of a request's body in bytes", at_least=1)
    max_held_bytes: int = setting(
        64 * 2**20,
        help="largest size of all bodies and answers together; beyond it requests get 429, and longer answers 413",
        at_least=1,
    )
    timeout_s: float = setting(30.0, help="seconds that a request may take", above=0)
    check_s: float = setting(5.0, help="seconds between checks of whether the models are available", above=0)
    root_path: str = setting(
        "", help="prefix that a proxy adds to every path, such as /models; paths without it work too"
    )
    cors_origins: tuple[str, ...] = setting(
        (), help="origins whose pages may send requests (CORS), comma-separated; * allows all"
    )
    access_log: str = setting("", help="file for one line of JSON per request, without its texts; - = standard output")
    log_bodies: bool = setting(False, help="write bodies of requests, with their texts, to --access_log")
    drain_s: float = setting(20.0, help="seconds that the gateway waits for running requests after SIGTERM", at_least=0)


def main(settings: GatewaySettings) -> None:
    """Serves until it is stopped."""
    _log_to_stderr()
    if settings.root_path and not settings.root_path.startswith("/"):
        raise UserError(f"--root_path={settings.root_path} must begin with a slash, as paths do")
    if settings.log_bodies and not settings.access_log:
        raise UserError("--log_bodies writes to --access_log, which is not given; give it, or leave --log_bodies out")
    origins = tuple(name for item in settings.cors_origins for name in item.split(",") if name)
    for origin in origins:
        if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/]+", origin):
            raise UserError(
                f"--cors_origins={origin} is no origin; give *, or a scheme and a host: https://example.org"
            )
    models = tuple(dict.fromkeys(name for item in settings.model for name in item.split(",") if name))
    if not models:
        raise UserError("--model=NAME must be given: the model server's name of the model")
    try:
        from serving import http_protocol
        from serving.gateway import keys, scheduler, server, service
    except ModuleNotFoundError as error:
        raise UserError(f"the gateway needs {error.name}: pip install starlette") from error

    limits = scheduler.Limits(
        settings.max_batch_tokens, settings.max_batch_rows, settings.max_in_flight, settings.max_queued_tokens
    )  # fmt: skip
    options = service.GatewayOptions(
        connection=settings.connection(attempts=2),
        models=models,
        keys=keys.Keys.read(settings.api_key_file) if settings.api_key_file else None,
        limits=limits,
        max_inputs=settings.max_inputs,
        max_body_bytes=settings.max_body_bytes,
        max_held_bytes=settings.max_held_bytes,
        timeout_s=settings.timeout_s,
        check_s=settings.check_s,
        root_path=settings.root_path.rstrip("/"),
        access_log=settings.access_log,
        log_bodies=settings.log_bodies,
        cors_origins=origins,
    )
    http_protocol.raise_file_limit()
    gateway = server.GatewayServer(options, settings.bind_address, settings.port, settings.drain_s)
    print(f"answering at http://{settings.bind_address}:{gateway.port}/docs; Ctrl-C stops", flush=True)
    gateway.run()


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
