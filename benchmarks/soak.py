"""Do equal rows get equal bits, call after call? `python -m benchmarks.soak --help`.

Two clients send rows of 4 to 256 tokens in shuffled order to each engine, two threads each. Counted are the answers
that differ in a bit from the row's first answer, and those that are not finite. The counts of each CPU are kept in
--output_file; a later run goes on where an earlier one ended.
"""

import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

import concurrent.futures
import dataclasses
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.inference import LITE, OURS, export, export_lite, machine, make_random_encoder
from benchmarks.inference_data import pad, shape
from benchmarks.memory import memory_mib
from tfrecords.base import files
from tfrecords.base.script import progress_bar, run_main
from tfrecords.base.settings import setting

CLIENTS = THREADS = 2
ROWS = 1000


@dataclasses.dataclass(frozen=True)
class SoakSettings:
    output_file: str = setting(help="JSON file of counts, by CPU, model and engine")
    config: str = setting("albert_base_v2", help="named configuration; the weights are random")
    layers: int = setting(0, help="layers in place of the configuration's; 0: as it says", at_least=0)
    engines: str = setting(",".join([*OURS, *LITE]), help="engines, separated by commas")
    calls: int = setting(20_000, help="calls of each engine, with those of earlier runs", at_least=1)


def make_engine(encoder, name: str, folder: Path, rows: list[list[int]]) -> Callable[[list[int]], np.ndarray]:
    """Exports the encoder; returns a function of a row of token ids to its pooled output."""
    if name in LITE:
        run = export_lite(encoder, LITE[name], folder, THREADS)
    else:
        ids, _, lengths = pad(rows[:32])
        run = export(encoder, OURS[name], folder, (ids, lengths))
    return lambda row: run(np.array([row], np.int32), np.array([len(row)], np.int32))[0]


def soak(run: Callable, rows: list[list[int]], counts: dict, calls: int, save: Callable[[], None]) -> None:
    """Adds to `counts` until there are so many calls, and saves after each pass over the rows."""

    def ask(number: int) -> tuple[int, bool, bool]:
        answer = run(rows[number])
        digest = hashlib.sha256(answer.tobytes()).hexdigest()[:16]
        return number, first.setdefault(str(number), digest) == digest, bool(np.isfinite(answer).all())

    first = counts.setdefault("first", {})
    with (
        progress_bar(total=calls, initial=counts["calls"]) as bar,
        concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool,
    ):
        while counts["calls"] < calls:
            order = np.random.default_rng(counts["calls"]).permutation(len(rows))[: calls - counts["calls"]]
            for number, is_equal, is_finite in pool.map(ask, order.tolist()):
                counts["different"] += not is_equal
                counts["not_finite"] += not is_finite
                if not is_equal:
                    print(f"row {number}, {len(rows[number])} tokens: other bits")
                bar.update()
            counts["calls"] += len(order)
            counts["own_mib"] = [*counts["own_mib"][:1], round(memory_mib("RssAnon"))]
            save()


def main(settings: SoakSettings) -> None:
    path = Path(settings.output_file)
    results = json.loads(path.read_text()) if path.exists() else {}
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    here = machine()
    encoder = make_random_encoder(settings.config, settings.layers)
    key = f"{here['cpu']} ({', '.join(here['flags'])}), TensorFlow {here['tensorflow']}"
    found = results.setdefault(key, {}).setdefault(f"{settings.config}, {encoder.config.num_hidden_layers} layers", {})
    lengths = np.random.default_rng(0).integers(4, 257, ROWS)
    rows = [shape(1, 256, encoder.config.vocab_size)[0][:length] for length in lengths]
    for name in settings.engines.split(","):
        counts = found.setdefault(name, {"calls": 0, "different": 0, "not_finite": 0, "own_mib": []})
        begin, before = time.monotonic(), counts["calls"]
        # The memory is this process's own, after the first pass over the rows and at the end.
        counts["own_mib"] = []
        with tempfile.TemporaryDirectory() as folder:
            run = make_engine(encoder, name, Path(folder) / "m", rows)
            soak(run, rows, counts, settings.calls, lambda: files.write_json(path, results))
        shown = {key: value for key, value in counts.items() if key != "first"}
        print(f"{name}: {shown}, {(counts['calls'] - before) / (time.monotonic() - begin):.1f} calls a second")


if __name__ == "__main__":
    run_main(main, SoakSettings)
