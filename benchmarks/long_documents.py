"""What windows of attention save of a long row's time: `python -m benchmarks.long_documents --help`.

Exports of ALBERT-base's sizes with rotary positions take turns in one process.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import json

from albert_tf import AlbertConfig
from albert_tf.analysis.cost import flops
from benchmarks.inference import machine
from benchmarks.modern_block import ModernBlockSettings, benchmark
from serving.choices import COMPUTE
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting


@dataclasses.dataclass(frozen=True)
class LongDocumentsSettings:
    """What is timed."""

    lengths: str = setting("512,2048,4096", help="tokens of a row, by commas")
    window: int = setting(128, help="places to each side that a token attends to", at_least=1)
    every: int = setting(3, help="every so many steps attend to all tokens", at_least=1)
    compute: str = setting("bfloat16", help="how the exports compute", choices=COMPUTE)
    rounds: int = setting(7, help="timed rounds after one of warm-up", at_least=1)


def main(settings: LongDocumentsSettings) -> None:
    """Prints a table in Markdown."""
    window = {"attention_window": settings.window}
    options = {
        "full attention": {},
        f"window {settings.window}, every {settings.every}. step full": window
        | {"global_attention_every": settings.every},
        f"window {settings.window}": window,
    }
    print(json.dumps(machine()))
    print(f"| 1 row, {settings.compute} | tokens | GFLOP | milliseconds | of full |")
    print("|---|---|---|---|---|")
    for length in map(int, settings.lengths.split(",")):
        rotary = {"position_type": "rotary", "max_position_embeddings": max(length, 512)}
        cases = {name: rotary | changes for name, changes in options.items()}
        request = ModernBlockSettings(compute=settings.compute, length=length, rounds=settings.rounds)
        times = benchmark(request, cases)
        for name, changes in cases.items():
            work = flops(AlbertConfig.named(request.config).replace(**changes), length).total / 1e9
            ratio = times[name] / times["full attention"]
            print(f"| {name} | {length} | {work:.0f} | {times[name]:.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    run_main(main, LongDocumentsSettings)
