"""What early exit gains at a model's own size, whatever it was trained for: rows leave after as many steps as told."""

import keras
import numpy as np
import tensorflow as tf

from albert_tf import AlbertClassifier
from benchmarks import inference_data
from benchmarks.inference_accuracy import IDS, LENGTHS, THRESHOLD
from serving.inference import ExitRule, InferenceOptions, make_encoder


def measure(
    encoder, rows, mean_steps: float, computes: list[str], rounds: int, time_rounds
) -> dict[str, dict[str, float]]:
    """Milliseconds of one batch by arithmetic: without exits, with exits that nobody takes, and with rows leaving.

    Args:
        rows: lists of token ids.
        mean_steps: over which rows leave, geometrically spread from the second step to the last.
        computes: the arithmetic to measure, such as float32.
        time_rounds: function of (functions by name, rounds) to medians by name.
    """
    ids, _, lengths = inference_data.pad(rows)
    ids, lengths = tf.constant(ids), tf.constant(lengths)
    model = AlbertClassifier(encoder, num_classes=2, early_exit=True)
    model({"input_ids": ids})
    for head in model.exit_heads:
        # One answer at every step: a row leaves when its own patience, the threshold, is over.
        head.bias.assign(keras.ops.convert_to_tensor([5.0, -5.0]))
    steps = 1 + np.random.default_rng(0).geometric(1 / (mean_steps - 1), len(rows))
    patience = tf.constant(np.minimum(steps, len(model.exit_heads)) - 1, tf.float32)
    found = {}
    for compute in computes:
        module = make_encoder(model, InferenceOptions(compute, "skipped"))
        plain = tf.function(module.pooled, autograph=False).get_concrete_function(IDS, LENGTHS)
        exits = _exits(module, model)
        functions = {
            "plain": lambda plain=plain: plain(ids, lengths).numpy(),
            "nobody leaves": lambda exits=exits: exits(ids, lengths, tf.fill([len(rows)], 99.0))["logits"].numpy(),
            "rows leave": lambda exits=exits: exits(ids, lengths, patience)["logits"].numpy(),
        }
        taken = float(tf.reduce_mean(tf.cast(exits(ids, lengths, patience)["steps"], tf.float32)))
        found[compute] = time_rounds(functions, rounds) | {"steps": taken}
    return found


def _exits(module, model):
    def exits(input_ids, lengths, threshold):
        rule = ExitRule("classification", "patience")
        return module.early_exit(input_ids, lengths, None, model.exit_heads, threshold, rule)

    return tf.function(exits, autograph=False).get_concrete_function(IDS, LENGTHS, THRESHOLD)
