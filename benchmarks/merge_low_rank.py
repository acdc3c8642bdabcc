"""Times one row through the encoders of all-MiniLM-L6-v2's sizes: as it is, with low rank by depth, and merged.

python -m benchmarks.merge_low_rank

The weights are random, which changes no time. They are timed in this process, in random turns.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import random
import time

import numpy as np
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.checkpoints.sharing import unshare_blocks
from benchmarks.machine import machine_line
from serving.inference import InferenceOptions, make_encoder
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting

_MINILM = AlbertConfig(
    vocab_size=30522, embedding_size=384, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
    intermediate_size=1536, sharing="none", hidden_act="gelu_erf",
)  # fmt: skip
_NARROW = _MINILM.replace(vocab_size=20000, embedding_size=64, factorization="word")
_SHARED = _NARROW.replace(sharing="all", depth_plan="1+1x4+1", depth_lora_rank=6)


@dataclasses.dataclass(frozen=True)
class MergeSettings:
    """What is timed."""

    computes: str = setting("int8,float32", help="arithmetics, comma-separated")
    length: int = setting(32, help="tokens of the row", at_least=1)
    seconds: float = setting(30.0, help="seconds of timing for each arithmetic", above=0)


def main(settings: MergeSettings) -> None:
    """Times all encoders and prints a line for each."""
    shared = AlbertEncoder(_SHARED, pooler=False)
    encoders = {
        "all-MiniLM-L6-v2": AlbertEncoder(_MINILM, pooler=False),
        "7.0 million, low rank": shared,
        "7.0 million, merged": unshare_blocks(shared),
        "three steps": AlbertEncoder(_NARROW.replace(num_hidden_layers=3), pooler=False),
    }
    print(machine_line())
    for compute in settings.computes.split(","):
        times = _times(encoders, compute, settings)
        first = np.median(times["all-MiniLM-L6-v2"])
        for name, found in times.items():
            middle, late = np.percentile(found, [50, 95])
            print(
                f"{compute:8} {name:24} median {middle:6.2f} ms, p95 {late:6.2f}, ratio {middle / first:.3f}",
                flush=True,
            )


def _times(encoders: dict[str, AlbertEncoder], compute: str, settings: MergeSettings) -> dict[str, list[float]]:
    ids = tf.constant(np.random.default_rng(0).integers(5, 20000, (1, settings.length)), tf.int32)
    lengths, signature = tf.constant([settings.length]), [tf.TensorSpec(shape, tf.int32) for shape in ([1, None], [1])]
    functions = {}
    for name, encoder in encoders.items():
        made = make_encoder(encoder, InferenceOptions(compute))
        functions[name] = tf.function(made, signature, autograph=False)
        functions[name](ids, lengths)
    times, order = {name: list[float]() for name in functions}, list(functions)
    end = time.monotonic() + settings.seconds
    while time.monotonic() < end:
        random.shuffle(order)
        for name in order:
            functions[name](ids, lengths)
            for _ in range(10):
                began = time.perf_counter()
                functions[name](ids, lengths)["sequence_output"].numpy()
                times[name].append(1000 * (time.perf_counter() - began))
    return times


if __name__ == "__main__":
    run_main(main, MergeSettings)
