"""Our encoder beside keras-hub's AlbertBackbone, same process, same sizes: `python -m benchmarks.encoder_speed`.

Prints medians in milliseconds of a compiled forward pass and of a training step (masked words at 20 positions, Adam),
the two libraries taking turns, so that a machine's drift meets both.
"""

import argparse

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from benchmarks import hub
from benchmarks.machine import machine_line
from benchmarks.timing import medians_ms, seconds_in_turns


def forward_functions(config, dtype, batch, length):
    """A zero-argument compiled forward pass for each walk and for keras-hub."""
    ids = tf.constant(np.random.default_rng(0).integers(5, config.vocab_size, (batch, length)), "int32")
    ones, zeros = tf.ones_like(ids), tf.zeros_like(ids)
    ours = {"input_ids": ids, "input_mask": ones, "segment_ids": zeros}
    functions = {}
    for walk in ("unrolled", "loop"):
        encoder = AlbertEncoder(config, walk=walk, dtype=dtype)
        functions[f"ours, {walk}"] = compiled(lambda encoder=encoder: encoder(ours)["sequence_output"])
    backbone = hub.backbone(config, dtype=dtype)
    theirs = {"token_ids": ids, "padding_mask": ones, "segment_ids": zeros}
    functions["keras-hub"] = compiled(lambda: backbone(theirs)["sequence_output"])
    return functions


def training_functions(config, dtype, batch, length, predictions=20):
    inputs, labels, weights = hub.masked_rows(config.vocab_size, batch, length, predictions)
    ours = AlbertPretrainer(AlbertEncoder(config, dtype=dtype), pair_task=None)
    ours.compile(keras.optimizers.Adam(1e-4))
    features = {
        "input_ids": inputs["token_ids"], "input_mask": inputs["padding_mask"], "segment_ids": inputs["segment_ids"],
        "masked_lm_positions": inputs["mask_positions"], "masked_lm_ids": labels, "masked_lm_weights": weights,
    }  # fmt: skip
    theirs = keras_hub.models.AlbertMaskedLM(hub.backbone(config, dtype=dtype))
    theirs.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return {
        "ours": lambda: ours.train_on_batch(features),
        "keras-hub": lambda: theirs.train_on_batch(inputs, labels, weights),
    }


def compiled(function):
    graph = tf.function(function, autograph=False)
    return lambda: graph().numpy()


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
                found = medians_ms(seconds_in_turns(make(config, dtype, batch, length), arguments.repeats, warm_up=2))
                row = "  ".join(f"{name} {value:8.1f}" for name, value in found.items())
                print(f"{kind:9} {dtype:15} {shape:>7}  {row}", flush=True)


if __name__ == "__main__":
    main()
