"""Everything a benchmark run is told, checked at the door."""

from dataclasses import dataclass, field

from serving.client.channel import Connection
from tfrecords.errors import UserError

ARRIVALS = ("closed", "constant", "poisson")


@dataclass(frozen=True)
class Settings:
    """What to send, how it arrives and how long.

    arrival: "closed" (each of `clients` sends when its answer is in), or open loop at `rates` requests/s: "constant"
    or "poisson". seconds: measured a point, after warmup_seconds; windows: parts it is cut into for the stability
    verdict. least_requests: a closed loop goes on until it has as many, ten times `seconds` at most. bound_ms: answers
    within it are goodput. lengths: tokens (words for a text model); mixed: rows of text_file as they are instead.
    processes: of the generator. check: compare answers with the first one to the same request.
    """

    connection: Connection
    model: str = "default"
    version: int | None = None
    label: str | None = None
    signature: str = "serving_default"
    scenario: str | None = None
    arrival: str = "closed"
    clients: tuple[int, ...] = (1,)
    rates: tuple[float, ...] = ()
    lengths: tuple[int, ...] = (12, 32, 64, 128, 256, 384, 512)
    batches: tuple[int, ...] = (1,)
    mixed: bool = False
    text_file: str | None = None
    tokenizer: str | None = None
    seconds: float = 10.0
    warmup_seconds: float = 1.0
    windows: int = 5
    least_requests: int = 0
    bound_ms: float | None = None
    timeout_s: float = 30.0
    processes: int = 1
    connections: int = 1
    check: bool = True
    seed: int = 0
    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.arrival not in ARRIVALS:
            raise UserError(f"arrival '{self.arrival}' is unknown; choose one of {', '.join(ARRIVALS)}")
        if self.arrival != "closed" and not self.rates:
            raise UserError(f"arrival '{self.arrival}' is open loop: give --rate, requests per second")
        if self.arrival == "closed" and self.rates:
            raise UserError("--rate belongs to open loop: choose --arrival=poisson or --arrival=constant")
        if self.mixed and not self.text_file:
            raise UserError("--mixed draws its lengths from a text: give --text_file")
        for name in ("clients", "rates", "lengths", "batches"):
            bad = [value for value in getattr(self, name) if value <= 0]
            if bad:
                raise UserError(f"{name} has {bad[0]}; it must be above 0")
        for name in ("seconds", "windows", "timeout_s", "processes", "connections"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must be above 0")
