"""What windows of attention save of a long row's time and memory: `python -m benchmarks.long_documents --help`.

Exports of ALBERT-base's sizes with rotary positions take turns in one process; the memory of an answer, beyond what the
process holds after a short one, is measured in a process for each (Linux).
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import json
import multiprocessing
import tempfile
from pathlib import Path

import numpy as np

from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.analysis.cost import flops
from benchmarks.inference import export, machine
from benchmarks.inference_loading import trimmed_mib
from benchmarks.memory import memory_mib
from benchmarks.modern_block import ModernBlockSettings, benchmark
from serving.choices import COMPUTE
from serving.inference import InferenceOptions
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
    print(f"| 1 row, {settings.compute} | tokens | GFLOP | milliseconds | of full | MiB |")
    print("|---|---|---|---|---|---|")
    for length in map(int, settings.lengths.split(",")):
        rotary = {"position_type": "rotary", "max_position_embeddings": max(length, 512)}
        cases = {name: rotary | changes for name, changes in options.items()}
        request = ModernBlockSettings(compute=settings.compute, length=length, rounds=settings.rounds)
        times = benchmark(request, cases)
        for name, changes in cases.items():
            work = flops(AlbertConfig.named(request.config).replace(**changes), length).total / 1e9
            ratio = times[name] / times["full attention"]
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                memory = pool.apply(answer_memory, (request, changes))
            print(f"| {name} | {length} | {work:.0f} | {times[name]:.0f} | {ratio:.2f} | {memory:.0f} |", flush=True)


def answer_memory(request: ModernBlockSettings, changes: dict) -> float:
    """MiB that the answer to one row needs at its peak, beside what this process holds before; needs Linux's /proc."""
    encoder = AlbertEncoder(AlbertConfig.named(request.config).replace(**changes))
    with tempfile.TemporaryDirectory() as folder:
        run = export(encoder, InferenceOptions(request.compute), Path(folder) / "1", segments=True)

        def answer(length: int) -> None:
            zeros = np.zeros((1, length), "int32")
            run(zeros + 5, np.array([length], "int32"), zeros)

        answer(8)
        # Or what export and load have freed would be used again for nothing.
        before = trimmed_mib()
        Path("/proc/self/clear_refs").write_text("5")  # The peak counts from here.
        answer(request.length)
        return memory_mib("VmHWM") - before


if __name__ == "__main__":
    run_main(main, LongDocumentsSettings)
