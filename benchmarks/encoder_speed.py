"""Our encoder beside keras-hub's AlbertBackbone, same process, same sizes: `python -m benchmarks.encoder_speed`.

Prints medians in milliseconds of a compiled forward pass and of a training step (masked words at 20 positions, Adam),
the two libraries taking turns, so that a machine's drift meets both.
"""

import argparse
import statistics
import time

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from benchmarks.machine import machine_line


def forward_functions(config, dtype, batch, length):
    """A zero-argument compiled forward pass for each walk and for keras-hub."""
    ids = tf.constant(np.random.default_rng(0).integers(5, config.vocab_size, (batch, length)), "int32")
    ones, zeros = tf.ones_like(ids), tf.zeros_like(ids)
    ours = {"input_ids": ids, "input_mask": ones, "segment_ids": zeros}
    functions = {}
    for walk in ("unrolled", "loop"):
        encoder = AlbertEncoder(config, walk=walk, dtype=dtype)
        functions[f"ours, {walk}"] = compiled(lambda encoder=encoder: encoder(ours)["sequence_output"])
    backbone = hub_backbone(config, dtype)
    theirs = {"token_ids": ids, "padding_mask": ones, "segment_ids": zeros}
    functions["keras-hub"] = compiled(lambda: backbone(theirs)["sequence_output"])
    return functions


def training_functions(config, dtype, batch, length, predictions=20):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, config.vocab_size, (batch, length)).astype("int32")
    ones, zeros = np.ones_like(ids), np.zeros_like(ids)
    places = np.sort(rng.permuted(np.tile(np.arange(length), (batch, 1)), axis=1)[:, :predictions]).astype("int32")
    labels, weights = np.take_along_axis(ids, places, 1), np.ones(places.shape, "float32")
    ours = AlbertPretrainer(AlbertEncoder(config, dtype=dtype), pair_task=None)
    ours.compile(keras.optimizers.Adam(1e-4))
    features = {"input_ids": ids, "input_mask": ones, "segment_ids": zeros, "masked_lm_positions": places}
    features |= {"masked_lm_ids": labels, "masked_lm_weights": weights}
    theirs = keras_hub.models.AlbertMaskedLM(hub_backbone(config, dtype))
    theirs.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = {"token_ids": ids, "padding_mask": ones, "segment_ids": zeros, "mask_positions": places}
    return {
        "ours": lambda: ours.train_on_batch(features),
        "keras-hub": lambda: theirs.train_on_batch(inputs, labels, weights),
    }


def hub_backbone(config, dtype):
    return keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dtype=dtype,
    )


def compiled(function):
    graph = tf.function(function, autograph=False)
    return lambda: graph().numpy()


def medians(functions, repeats):
    times = {name: [] for name in functions}
    for turn in range(repeats + 2):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn >= 2:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="albert_base_v2")
    parser.add_argument("--shapes", default="1x32,1x128,8x128", help="batch x length, by commas")
    parser.add_argument("--dtypes", default="float32,mixed_bfloat16")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    config = AlbertConfig.named(arguments.config)
    print(f"{arguments.config}; TensorFlow {tf.__version__}, {machine_line()}")
    for dtype in arguments.dtypes.split(","):
        for shape in arguments.shapes.split(","):
            batch, length = map(int, shape.split("x"))
            for kind, make in (("forward", forward_functions), ("training", training_functions)):
                found = medians(make(config, dtype, batch, length), arguments.repeats)
                row = "  ".join(f"{name} {value:8.1f}" for name, value in found.items())
                print(f"{kind:9} {dtype:15} {shape:>7}  {row}", flush=True)


if __name__ == "__main__":
    main()
