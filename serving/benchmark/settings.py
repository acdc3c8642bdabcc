from dataclasses import dataclass
from typing import Any, ClassVar

from serving.client.channel import Connection
from serving.client.settings import ModelSettings
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.settings import setting

ARRIVALS = ("closed", "constant", "poisson")


@dataclass(frozen=True)
class BenchmarkSettings(ModelSettings):
    """The flags of a benchmark run.

    Every combination of lengths, batches and clients (or rates) is a point.
    """

    groups: ClassVar[dict[str, str]] = {
        "Server": "target model version signature timeout_s tls",
        "Requests": "lengths batches text_file tokenizer",
        "Load": "arrival clients rate find_rate bound_ms seconds warmup_seconds",
        "Output": "output_dir",
    }

    output_dir: str = setting("benchmark", help="folder for report.json, report.csv and latency.png")
    arrival: str = setting(
        "closed", help="closed (each client waits for its answer), constant or poisson (open loop)", choices=ARRIVALS
    )
    clients: str = setting("1", help="numbers of clients to measure with, comma-separated (closed loop)")
    rate: str = setting("", help="requests per second to measure with, comma-separated (open loop)")
    find_rate: bool = setting(False, help="search for the highest Poisson rate whose p99 meets --bound_ms")
    bound_ms: float = setting(0.0, help="latency bound; 0 means none", at_least=0)
    lengths: str = setting(
        "12,32,64,128,256,384,512", help="tokens a row, or words a text for text models, comma-separated"
    )
    batches: str = setting("1", help="rows a request, comma-separated")
    text_file: str = setting(
        "", help="text file whose rows to send, of ids cut to the largest of --lengths; empty: random rows"
    )
    tokenizer: str = setting("", help="vocabulary or tokenizer folder, for --text_file with a token-id model")
    seconds: float = setting(
        10.0, help="seconds to measure each point; up to ten times as long if answers are too few", above=0
    )
    warmup_seconds: float = setting(1.0, help="seconds of the same load before the measurement starts", at_least=0)
    in_process: str = setting("", help="SavedModel folder (.../NAME/1) to call in this process as well, for comparison")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clients", "rate", "lengths", "batches"):
            self.numbers(name)
        is_open = self.arrival != "closed"
        refuse({
            "--find_rate holds p99 against a bound: give --bound_ms": self.find_rate and not self.bound_ms,
            f"{self.arrival} arrivals are an open loop: give --rate, requests per second":
                is_open and not (self.rate or self.find_rate),
            "--rate belongs to an open loop: choose --arrival=poisson or --arrival=constant": not is_open and self.rate,
        })  # fmt: skip

    # Without retries, so that each failure is measured.
    def connection(self, **options: Any) -> Connection:
        return super().connection(attempts=1, **options)

    def numbers(self, name: str) -> list[int] | list[float]:
        text, kind = getattr(self, name), float if name == "rate" else int
        try:
            numbers = [kind(item) for item in text.split(",") if item.strip()]
        except ValueError as error:
            raise UserError(f"--{name}={text} is not a comma-separated list of numbers") from error
        if any(not number > 0 for number in numbers) or (not numbers and name != "rate"):
            raise UserError(f"--{name}={text} must list numbers above 0")
        return numbers
