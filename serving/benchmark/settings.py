from dataclasses import dataclass, replace
from typing import Any, ClassVar

from serving.benchmark import rest
from serving.client.channel import Connection
from serving.client.settings import ConnectionSettings
from tfrecords.base.errors import UserError
from tfrecords.base.settings import setting

ARRIVALS = ("closed", "constant", "poisson")
PROTOCOLS = ("grpc", "rest")
# --least_requests stretches a point to this many times --seconds at most.
LONGEST_STRETCH = 10
# The arrival models of MLPerf Inference's scenarios. Durations stay ours: MLPerf's are for submissions.
SCENARIOS = {
    "single_stream": {"arrival": "closed", "clients": "1"},
    "server": {"arrival": "poisson"},
    "offline": {"arrival": "closed", "clients": "4"},
}


@dataclass(frozen=True)
class BenchmarkSettings(ConnectionSettings):
    """The flags of a benchmark run.

    Every combination of lengths, batches and clients (or rates) is a point.
    """

    groups: ClassVar[dict[str, str]] = {
        "Server": "target model version signature protocols timeout_s tls",
        "Requests": "lengths batches text_file tokenizer mixed",
        "Load": "scenario clients rate find_rate bound_ms seconds warmup_seconds seed",
        "Output": "output_dir",
    }

    model: str = setting("default", help="name of the model")
    version: int = setting(0, help="version of the model; 0 means the newest")
    label: str = setting("", help="version label, instead of --version")
    signature: str = setting("serving_default", help="signature to call")
    output_dir: str = setting("benchmark", help="folder for report.json, report.csv, plots and report.html")
    scenario: str = setting("", help="preset of arrivals: single_stream, server (needs --bound_ms) or offline")
    arrival: str = setting(
        "closed", help="closed (each client waits for its answer), constant or poisson (open loop)", choices=ARRIVALS
    )
    clients: str = setting("1", help="numbers of clients to measure with, comma-separated (closed loop)")
    rate: str = setting("", help="requests per second to measure with, comma-separated (open loop)")
    protocols: str = setting("grpc", help="grpc, rest (JSON to --rest_api_port, closed loop) or both: grpc,rest")
    find_rate: bool = setting(False, help="search for the highest Poisson rate whose p99 meets --bound_ms")
    bound_ms: float = setting(0.0, help="latency bound; answers within it are goodput; 0 means none", at_least=0)
    lengths: str = setting(
        "12,32,64,128,256,384,512", help="tokens a row, or words a text for text models, comma-separated"
    )
    batches: str = setting("1", help="rows a request, comma-separated")
    mixed: bool = setting(False, help="use rows of --text_file at their own lengths, cut to the largest of --lengths")
    text_file: str = setting("", help="text file to draw rows from; empty: random rows")
    tokenizer: str = setting("", help="vocabulary or tokenizer folder, for --text_file with a token-id model")
    seconds: float = setting(10.0, help="seconds to measure each point", above=0)
    warmup_seconds: float = setting(1.0, help="seconds of the same load before the measurement starts", at_least=0)
    windows: int = setting(
        10, help="largest number of parts that a point is split into, for the stability verdict and intervals", above=0
    )
    least_requests: int = setting(
        0,
        help="measure until there are this many requests, for ten times --seconds at most; 0: 1,000 for "
        "--find_rate, else none",
        at_least=0,
    )
    timeout_s: float = setting(30.0, help="seconds to wait for an answer", above=0)
    check: bool = setting(True, help="compare every answer with the first one to the same request")
    in_process: str = setting("", help="SavedModel folder (.../NAME/1) to call in this process as well, for comparison")
    rest_api_port: int = setting(
        0, help="the server's REST port, for --protocols=rest and the server's Prometheus metrics; 0 means none"
    )
    processes: int = setting(
        1, help="load generator processes; use several only if the server leaves cores free", above=0
    )
    connections: int = setting(1, help="connections of each load generator process", above=0)
    seed: int = setting(0, help="seed for the request contents and the Poisson arrivals")
    server_name: str = setting("", help="name in the server's certificate, if it is not the target's host")
    compression: str = setting("", help="compression of requests: gzip or deflate")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scenario and self.scenario not in SCENARIOS:
            raise UserError(f"--scenario={self.scenario} is unknown; choose one of {', '.join(SCENARIOS)}")
        for name in ("clients", "rate", "lengths", "batches"):
            self.numbers(name)
        self._check_combination()

    def _check_combination(self) -> None:
        arrival = self.resolved().arrival
        if (self.find_rate or self.scenario == "server") and not self.bound_ms:
            raise UserError("--find_rate and --scenario=server hold p99 against a bound: give --bound_ms")
        if arrival != "closed" and not (self.rate or self.find_rate):
            raise UserError(f"{arrival} arrivals are an open loop: give --rate, requests per second, or --find_rate")
        if arrival == "closed" and self.rate:
            raise UserError("--rate belongs to an open loop: choose --arrival=poisson or --arrival=constant")
        if self.mixed and not self.text_file:
            raise UserError("--mixed takes its lengths from a text: give --text_file")
        self._check_protocols(arrival)

    def _check_protocols(self, arrival: str) -> None:
        chosen = self.protocol_list()
        if not chosen or set(chosen) - set(PROTOCOLS):
            raise UserError(f"--protocols={self.protocols} is unknown; choose {', '.join(PROTOCOLS)} or both")
        if "rest" not in chosen:
            return
        if not self.rest_api_port:
            raise UserError("--protocols=rest needs the server's REST port: give --rest_api_port")
        if arrival != "closed" or self.find_rate:
            raise UserError("REST is measured in a closed loop alone: leave out --arrival and --find_rate")

    def protocol_list(self) -> list[str]:
        return [item.strip() for item in self.protocols.split(",") if item.strip()]

    def rest_url(self) -> str:
        return rest.predict_url(self.target, self.rest_api_port, self.model, self.version, self.label)

    def resolved(self) -> "BenchmarkSettings":
        changes = {**SCENARIOS.get(self.scenario, {}), "scenario": ""}
        return replace(self, **changes) if self.scenario else self

    # Without retries, so that each failure is measured.
    def connection(self, **options: Any) -> Connection:
        name, compression = self.server_name or None, self.compression or None
        return super().connection(server_name=name, compression=compression, attempts=1, **options)

    def numbers(self, name: str) -> list[int] | list[float]:
        text, kind = getattr(self, name), float if name == "rate" else int
        try:
            numbers = [kind(item) for item in text.split(",") if item.strip()]
        except ValueError as error:
            raise UserError(f"--{name}={text} is not a comma-separated list of numbers") from error
        if any(not number > 0 for number in numbers) or (not numbers and name != "rate"):
            raise UserError(f"--{name}={text} must list numbers above 0")
        return numbers
