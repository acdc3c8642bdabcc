"""The settings of a gateway."""

import re
from dataclasses import dataclass

from tfrecords.base.errors import refuse
from tfrecords.base.settings import CheckedSettings, setting


@dataclass(frozen=True, kw_only=True)
class GatewayOptions(CheckedSettings):
    """Limits, log, and what proxies and browsers need; the last four are no flags."""

    max_batch_tokens: int = setting(
        1024, help="largest number of tokens in a batch; a longer row is sent alone", at_least=1
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
    root_path: str = setting(
        "", help="prefix that a proxy adds to every path, such as /models; paths without it work too"
    )
    cors_origins: tuple[str, ...] = setting(
        (), help="origins whose pages may send requests (CORS), comma-separated; * allows all"
    )
    access_log: str = setting("", help="file for one line of JSON per request, without its texts; - = standard output")
    log_bodies: bool = setting(False, help="write bodies of requests, with their texts, to --access_log")

    max_batch_rows: int = 256
    # Batches at the model server at the same time. A model without a batch may send one beyond it.
    max_in_flight: int = 2
    # Between looks at what the models are.
    check_s: float = 5.0
    # For running requests after SIGTERM.
    drain_s: float = 20.0

    def __post_init__(self):
        super().__post_init__()
        refuse({
            f"--root_path={self.root_path} must begin with a slash, as paths do":
                self.root_path and not self.root_path.startswith("/"),
            "--log_bodies writes to --access_log, which is not given; give it, or leave --log_bodies out":
                self.log_bodies and not self.access_log,
        } | {
            f"--cors_origins={origin} is no origin; give *, or a scheme and a host: https://example.org":
                origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/]+", origin)
            for origin in listed(self.cors_origins)
        })  # fmt: skip


def listed(values: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the different names in lists that are separated by commas."""
    return tuple(dict.fromkeys(name for item in values for name in item.split(",") if name))
