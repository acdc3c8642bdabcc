"""Encoders of every configuration: what they answer, their gradients, and steps of training."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .configurations import CONFIGURATIONS, OF_EACH_KIND, XLNET, encoder_of, fields_of
from .filled import (
    BATCH,
    IDS,
    LABELS,
    PACKED,
    PERMUTED,
    TARGETS,
    WORDS,
    fill,
    memory_of,
    numbers,
    prefixed,
    random_like,
    short,
    weights_of,
)
from .groups import Case, Folders
from .places import take

WALKS = ("unrolled", "loop", "recompute")
# Those whose graphs are made for every walk; without graphs all are, under `gradients`.
IN_EVERY_WALK = ("albert", "modern rotary", "random depth", "halting act", "six at once", "xlnet")


def cases(folders: Folders, what: str) -> Iterator[Case]:
    """Returns the cases of encoders that a group runs."""
    if what == "gradients":
        for name in CONFIGURATIONS:
            yield f"forward, {name}", forward, name
            for walk in walks_of(name):
                yield f"gradients, {name}, {walk}", gradients, name, walk
            yield f"mixed bfloat16, {name}", gradients, name, WALKS[0], "mixed_bfloat16"
            yield f"initial weights, {name}", initial, name
        for name in ("albert", "rms norm", "modern"):
            for dtype in ("float32", "mixed_bfloat16"):
                yield f"small numbers, {name}, {dtype}", small_numbers, name, dtype
    if what == "steps":
        for name in CONFIGURATIONS:
            yield f"three steps, {name}", functools.partial(steps, name, eagerly=True)
    if what == "graphs":
        for name in OF_EACH_KIND:
            for walk in walks_of(name) if name in IN_EVERY_WALK else WALKS[:1]:
                yield f"graph of three steps, {name}, {walk}", steps, name, walk
            if name in IN_EVERY_WALK:
                yield f"graph in mixed bfloat16, {name}", functools.partial(steps, name, dtype="mixed_bfloat16")


def walks_of(name: str) -> tuple[str, ...]:
    """Returns the walks that give a configuration's numbers: one that seeks a fixed point has its own alone."""
    return WALKS if fields_of(name).get("equilibrium_solver", "none") == "none" else WALKS[:1]


def make(name: str, walk: str = "unrolled", dtype: str = "float32") -> Any:
    """Returns the encoder of a configuration, its weights filled."""
    return fill(encoder_of(name, walk=walk, dtype=dtype))


def inputs_of(name: str, config: Any) -> dict[str, dict[str, np.ndarray]]:
    """Returns the batches that a configuration is tried on, by what they are."""
    plain = BATCH if config.type_vocab_size > 1 else {key: BATCH[key] for key in ("input_ids", "input_mask")}
    found = {"ids": {"input_ids": IDS}, "padded": plain}
    if name not in XLNET:
        places = {"position_ids": np.flip(np.arange(IDS.shape[1]))[None] * np.ones_like(IDS)}
        found["positions"] = plain | places
        if config.equilibrium_solver == "none" and not config.attention_window:
            found["packed"] = PACKED
        return found
    memory = memory_of(config)
    mapping = np.eye(IDS.shape[1], dtype="float32")[TARGETS] * np.array([1, 0], "float32")[:, None]
    found["memory"] = plain | memory
    found["two streams"] = plain | memory | PERMUTED | {"query_positions": TARGETS}
    found["mapping, reversed"] = plain | memory | {"target_mapping": mapping, "is_reversed": np.array([0, 1, 1])}
    return found


def forward(name: str) -> dict[str, np.ndarray]:
    """All outputs of a call, by every walk and every kind of batch; weights by name."""
    found = {}
    for walk in walks_of(name):
        encoder = make(name, walk)
        batches = inputs_of(name, encoder.config)
        for kind, batch in batches.items():
            found |= numbers(encoder(batch), f"{walk}/{kind}")
        if encoder.config.equilibrium_solver == "none":
            options = {"output_hidden_states": True, "output_attentions": not encoder.config.attention_window}
            found |= numbers(encoder(batches["padded"], **options), f"{walk}/all states")
    return found | prefixed("weights", weights_of(encoder))


def initial(name: str) -> dict[str, np.ndarray]:
    """The weights that a seed gives, with gates that are half open."""
    import keras

    keras.utils.set_random_seed(3)
    changes = {"gate_init": 0.5} if "gate_init" not in fields_of(name) else {}
    return weights_of(take("AlbertEncoder")(take("AlbertConfig").from_dict(fields_of(name, **changes))))


def small_numbers(name: str, dtype: str) -> dict[str, np.ndarray]:
    """Answers of weights as small as a norm's epsilon, which then decides."""
    encoder = make(name, dtype=dtype)
    small = 1e-6 if dtype == "float32" else 3e-4
    for weight in encoder.trainable_weights:
        if weight.name not in ("gamma", "scale"):
            weight.assign(weight * small)
    return numbers(encoder(BATCH))


def last_batch(name: str, config: Any) -> dict[str, np.ndarray]:
    """The batch with most in it: two streams and memory of XLNet."""
    batches = inputs_of(name, config)
    return batches.get("two streams", batches["padded"])


def weighed(outputs: dict[str, Any]) -> Any:
    """One number of all that a training step could look at."""
    from keras import ops

    total = 0.0
    for key in ("sequence_output", "pooled_output", "query_output"):
        if key in outputs:
            value = ops.cast(outputs[key], "float32")
            total = total + ops.sum(value * random_like(key, tuple(value.shape), 1.0))
    return total


def gradients(name: str, walk: str, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Outputs, loss and gradients of every weight, with dropout."""
    import tensorflow as tf

    encoder = make(name, walk, dtype)
    batch = last_batch(name, encoder.config)
    with tf.GradientTape() as tape:
        outputs = encoder(batch, training=True)
        loss = weighed(outputs) + sum(encoder.losses, 0.0)
    weights = encoder.trainable_variables
    found = {short(w.path): g for w, g in zip(weights, tape.gradient(loss, weights))}
    found = {key: tf.convert_to_tensor(g) if g is not None else None for key, g in found.items()}
    # By themselves: in a sum with numbers a thousand times as large, their last bits would be lost.
    added = numbers(list(encoder.losses), "added losses")
    return numbers(outputs, "outputs") | numbers(loss, "loss") | added | numbers(found, "gradients")


def model_of(name: str, walk: str, dtype: str) -> tuple[Any, dict, Any]:
    """Returns a compiled model on the encoder with a batch of features, and labels where it has a loss of its own."""
    import keras

    encoder = encoder_of(name, walk=walk, dtype=dtype)
    config = encoder.config
    optimizer = take("create_optimizer")("lamb" if name != "xlnet" else "adamw", 0.01, 10, 2)
    if name in XLNET and config.equilibrium_solver == "none":
        model = fill(take("XlnetPretrainer")(encoder))
        model.compile(optimizer)
        if config.memory_length:
            model.keep_memory(3, 3)
        return model, BATCH | WORDS | PERMUTED, None
    if encoder.pooler is None or name in ("albert", "modern"):
        model = fill(take("AlbertPretrainer")(encoder))
        model.compile(optimizer)
        return model, BATCH | WORDS, None
    model = fill(take("AlbertClassifier")(encoder, 2))
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, inputs_of(name, config)["padded"], LABELS


def steps(name: str, walk: str = "unrolled", dtype: str = "float32", eagerly: bool = False) -> dict[str, np.ndarray]:
    """Losses of three training steps with dropout, every weight and the optimizer's state after them, and answers."""
    import keras

    keras.utils.set_random_seed(5)
    model, features, labels = model_of(name, walk, dtype)
    model.run_eagerly = eagerly
    found = {}
    for step in range(3):
        found |= numbers(model.train_on_batch(features, labels, return_dict=True), f"step {step}")
    found |= prefixed("weights", weights_of(model))
    found |= {
        f"optimizer/{short(v.path)}": np.asarray(keras.ops.convert_to_numpy(v)) for v in model.optimizer.variables
    }
    return found | numbers(model(features) if eagerly else model.predict_on_batch(features), "answer")
