"""Training speed beside keras-hub's AlbertMaskedLM and the matrix products alone: `python -m benchmarks.training`.

One process, everything in turn, so that a machine's drift meets all alike: a step of ours as run_pretraining makes it,
on batches that its reader reads, a step of keras-hub's, and every matrix product of such a step by itself (the floor).
The head looks at gathered positions on both sides. Prints medians.
"""

import benchmarks.as_trained  # noqa: F401, I001  (first of all)

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keras
import keras_hub
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.optimizers import create_optimizer
from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.steps import Steps
from benchmarks import hub
from benchmarks.machine import machine_line
from benchmarks.texts import topics_and_vocabulary
from benchmarks.timing import seconds_of
from tfrecords.reader import read_examples


def build_records(folder: Path, length: int, predictions: int) -> Path:
    """Dynamic records of Python's help topics, at the given length."""
    text, vocabulary = topics_and_vocabulary(folder, 2000)
    command = ["tfrecords.create_pretraining_data", f"--input={text}", f"--tokenizer={vocabulary}"]
    command += [f"--output_dir={folder}/data", "--masking=dynamic", "--split_sentences", "--dupe_factor=5"]
    command += [f"--max_seq_length={length}", f"--max_predictions_per_seq={predictions}"]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    return folder / "data"


def our_step(config, arguments, records):
    """A step on the next batch of the reader; returns the seconds that it waited for the batch."""
    model = AlbertPretrainer(AlbertEncoder(config, dtype=arguments.dtype), pair_task=None)
    model.compile(optimizer=create_optimizer(arguments.optimizer, 1e-4, 10_000, 100))
    model.optimizer.build(model.trainable_variables)
    steps = Steps(model, Devices(), jit_compile=False)
    batches = steps.batches(
        lambda *shares: read_examples(str(records), arguments.batch, training=True), training=True
    )()

    def step() -> float:
        start = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - start
        steps.train(batch)
        return waited

    return step


def their_step(config, arguments):
    model = keras_hub.models.AlbertMaskedLM(hub.backbone(config, dropout=0.0, dtype=arguments.dtype))
    model.compile(keras.optimizers.AdamW(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    example = hub.masked_rows(config.vocab_size, arguments.batch, arguments.length, arguments.predictions)
    batches = iter(tf.data.Dataset.from_tensors(example).repeat())
    model.make_train_function()
    return lambda: model.train_function(batches)


def products(config, arguments):
    """(how often, a zero-argument product) for all matrix products of a training step: each forward, and two back."""
    rows, heads = arguments.batch * arguments.length, config.num_attention_heads
    hidden, wide, narrow = config.hidden_size, config.intermediate_size, config.embedding_size
    predicted, depth = arguments.batch * arguments.predictions, config.num_hidden_layers
    shapes = [(1, rows, narrow, hidden, 1), (4 * depth, rows, hidden, hidden, 1), (depth, rows, hidden, wide, 1)]
    shapes += [(depth, rows, wide, hidden, 1), (1, predicted, hidden, narrow, 1)]
    shapes += [(1, predicted, narrow, config.vocab_size, 1)]
    size, groups = arguments.length, arguments.batch * heads
    shapes += [(depth, size, hidden // heads, size, groups), (depth, size, size, hidden // heads, groups)]
    dtype = keras.DTypePolicy(arguments.dtype).compute_dtype
    multiply = {
        transposed: tf.function(lambda a, b, t=transposed: tf.matmul(a, b, transpose_a=t == "a", transpose_b=t == "b"))
        for transposed in ("", "a", "b")
    }
    found = []
    for count, m, k, n, batch in shapes:
        left, right, out = (tf.cast(tf.random.normal((batch, *s)), dtype) for s in ((m, k), (k, n), (m, n)))
        if batch == 1:
            left, right, out = left[0], right[0], out[0]
        for a, b, transposed in ((left, right, ""), (left, out, "a"), (out, right, "b")):
            found.append((count, lambda a=a, b=b, f=multiply[transposed]: f(a, b)))
    return found


def measure(ours, theirs, floor, rounds: int) -> dict[str, float]:
    """Medians in seconds over the rounds, after one for warming up."""
    times = {"ours": [], "keras-hub": [], "wait": []}
    product_times = [[] for _ in floor]
    for turn in range(rounds + 1):
        start = time.perf_counter()
        waited = ours()
        spent, hub = time.perf_counter() - start, seconds_of(theirs)
        alone = [seconds_of(function) for _, function in floor]
        if turn:
            for name, value in (("ours", spent), ("wait", waited), ("keras-hub", hub)):
                times[name].append(value)
            for kept, value in zip(product_times, alone):
                kept.append(value)
    found = {name: statistics.median(values) for name, values in times.items() if name != "wait"}
    found["wait"] = sum(times["wait"]) / sum(times["ours"])
    found["floor"] = sum(count * statistics.median(kept) for (count, _), kept in zip(floor, product_times))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="albert_base_v2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--dtype", default="mixed_bfloat16")
    parser.add_argument("--optimizer", default="lamb", help="ours: lamb or adamw; keras-hub's has Keras's AdamW")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", help="records of that length; built of Python's help texts if not given")
    arguments = parser.parse_args()
    config = AlbertConfig.named(arguments.config)
    with tempfile.TemporaryDirectory() as folder:
        records = arguments.records or build_records(Path(folder), arguments.length, arguments.predictions)
        ours = our_step(config, arguments, records)
        found = measure(ours, their_step(config, arguments), products(config, arguments), arguments.rounds)
    tokens = arguments.batch * arguments.length
    print(f"{machine_line()}, TensorFlow {tf.__version__}; medians of {arguments.rounds} rounds")
    print(f"{arguments.config}, {arguments.batch} x {arguments.length} tokens, {arguments.dtype}")
    for name in ("ours", "keras-hub", "floor"):
        label = "matrix products alone" if name == "floor" else name
        print(f"{label:22} {1e3 * found[name]:8.0f} ms a step {tokens / found[name]:8.0f} tokens/s")
    ratios = found["keras-hub"] / found["ours"], found["floor"] / found["ours"]
    print("ours is {:.2f} x keras-hub, {:.2f} of the matrix products alone".format(*ratios))
    print(f"input wait: {found['wait']:.2%} of our step")


if __name__ == "__main__":
    main()
