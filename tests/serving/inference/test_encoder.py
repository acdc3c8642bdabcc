"""The inference encoder gives the Keras encoder's numbers, for every plan, and its graph does not grow with depth."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder
from serving.inference import InferenceOptions, make_encoder

CONFIG = AlbertConfig(
    vocab_size=60, embedding_size=8, hidden_size=24, num_hidden_layers=4, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=16, initializer_range=0.3,
)  # fmt: skip
PLANS = {
    "all shared": {},
    "attention shared": {"sharing": "attention"},
    "unshared": {"sharing": "none"},
    "groups": {"num_hidden_groups": 2},
    "inner groups": {"inner_group_num": 2},
    "words factorised": {"factorization": "word"},
    "no projection": {"embedding_size": 24},
    "relu": {"hidden_act": "relu"},
    "exact gelu": {"hidden_act": "gelu_erf"},
}


def make_keras(seed=0, **changes):
    keras.utils.set_random_seed(seed)
    encoder = AlbertEncoder(CONFIG.replace(**changes))
    for variable in encoder.trainable_variables:
        if variable.name in ("bias", "beta"):
            variable.assign(keras.random.normal(variable.shape, stddev=0.1))
    return encoder


def make_batch(lengths=(9, 1, 4, 12), length=12, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.arange(length) < np.array(lengths)[:, None]
    # Padding holds what a server puts there: the first id, not 0.
    ids = np.where(mask, rng.integers(5, CONFIG.vocab_size, mask.shape), 2)
    return ids.astype("int32"), np.array(lengths, "int32"), rng.integers(0, 2, mask.shape).astype("int32"), mask


def compiled(encoder):
    return tf.function(encoder.__call__, autograph=False)


def difference(encoder, options, batch):
    """Largest differences from the Keras encoder at real tokens: of sequence_output and of pooled_output."""
    ids, lengths, segments, mask = batch
    expected = encoder({"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments})
    found = compiled(make_encoder(encoder, options))(ids, lengths, segments)
    assert found["sequence_output"].shape == expected["sequence_output"].shape
    sequence = np.abs(found["sequence_output"].numpy() - expected["sequence_output"].numpy())[mask]
    return sequence.max(), np.abs(found["pooled_output"].numpy() - expected["pooled_output"].numpy()).max()


@pytest.mark.parametrize("padding", ["computed", "skipped"])
@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS.keys())
def test_float32_equals_the_keras_encoder(changes, padding):
    assert max(difference(make_keras(**changes), InferenceOptions("float32", padding), make_batch())) < 1e-5


def test_graph_does_not_grow_with_depth():
    def nodes(depth):
        function = compiled(make_encoder(make_keras(num_hidden_layers=depth)))
        specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
        definition = function.get_concrete_function(*specs).graph.as_graph_def()
        return len(definition.node) + sum(len(one.node_def) for one in definition.library.function)

    assert nodes(2) == nodes(24)
