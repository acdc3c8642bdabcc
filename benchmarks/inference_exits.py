"""What early exit gains at a model's own size, whatever it was trained for: rows leave after as many steps as told."""

import functools

import keras
import numpy as np
import tensorflow as tf

from albert_tf import AlbertClassifier
from benchmarks import inference_data
from benchmarks.inference_accuracy import IDS, LENGTHS, exits_by
from serving.inference import ExitRule, InferenceOptions, make_encoder

_RULES = ("patience", "movement")


def measure(
    encoder, rows, mean_steps: float, computes: list[str], rounds: int, time_rounds
) -> dict[str, dict[str, float]]:
    """Milliseconds of one batch by arithmetic: without exits, and by rule if nobody leaves, or rows do.

    By movement nobody does: how far states move is the weights' affair, and these are random.

    Args:
        rows: lists of token ids.
        mean_steps: over which rows leave, geometrically spread from the second step to the last.
        computes: the arithmetic to measure, such as float32.
        time_rounds: function of (functions by name, rounds) to medians by name.
    """
    ids, _, lengths = inference_data.pad(rows)
    ids, lengths = tf.constant(ids), tf.constant(lengths)
    model = AlbertClassifier(encoder, num_classes=2, early_exit=True)
    for head in model.exit_heads:
        # One answer at every step: a row leaves when its own patience, the threshold, is over.
        head.bias.assign(keras.ops.convert_to_tensor([5.0, -5.0]))
    steps = 1 + np.random.default_rng(0).geometric(1 / (mean_steps - 1), len(rows))
    steps = np.minimum(steps, len(model.exit_heads))
    thresholds = {"patience, rows leave": steps - 1}
    for name in _RULES:
        thresholds[f"{name}, nobody leaves"] = np.full(len(rows), ExitRule(name=name).never)
    thresholds = {name: tf.constant(values, tf.float32) for name, values in sorted(thresholds.items())}
    found = {}
    for compute in computes:
        module = make_encoder(model, InferenceOptions(compute, "skipped"))
        plain = tf.function(module.pooled, autograph=False).get_concrete_function(IDS, LENGTHS)
        exits = {name: exits_by(name, module, model) for name in _RULES}
        functions = {"plain": lambda plain=plain: plain(ids, lengths).numpy()}
        for name, values in thresholds.items():
            exit_by = functools.partial(exits[name.split(",")[0]], ids, lengths, values)
            functions[name] = lambda exit_by=exit_by: exit_by()["logits"].numpy()
        taken = exits["patience"](ids, lengths, thresholds["patience, rows leave"])["steps"]
        found[compute] = time_rounds(functions, rounds) | {"steps": float(np.mean(taken))}
    return found
