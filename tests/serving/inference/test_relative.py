"""XLNet's attention in the inference encoder: distances, segments and [CLS] last give the Keras encoder's numbers."""

import keras
import pytest

from serving.inference import InferenceOptions
from tests.serving.inference.encoders import difference, make_batch, make_keras, paddings

PLANS = {
    "all shared": {},
    "untied": {"untie_biases": True},
    "unshared, one-directional": {"sharing": "none", "attention_type": "uni"},
    "clamped": {"clamp_length": 3},
    "groups, untied": {"depth_plan": "1+1x2+1", "untie_biases": True, "attention_type": "uni", "clamp_length": 2},
    "words factorised": {"factorization": "word"},
    "no projection": {"embedding_size": 24},
    "gated, pre-norm": {"feed_forward": "glu", "norm_position": "pre", "norm": "rms_norm"},
    "extended": {"hyper_connections": 2, "depth_lora_rank": 2, "step_signal": "learned", "hidden_act": "gelu_erf"},
    "equilibrium": {"equilibrium_solver": "fixed_point"},
}


def make_relative(seed=0, **changes):
    """Its biases and segment embeddings too are such that they matter."""
    encoder = make_keras(seed, position_type="relative", **changes)
    for variable in encoder.trainable_variables:
        if variable.path.split("/")[-1] in ("content_bias", "position_bias", "segment_bias", "segment_embeddings"):
            variable.assign(keras.random.normal(variable.shape, stddev=0.5))
    return encoder


@paddings
@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS.keys())
def test_float32_equals_the_keras_encoder(changes, padding):
    encoder, how = make_relative(**changes), InferenceOptions("float32", padding)
    for batch, graph in ((make_batch(), False), (make_batch((7,), 9), True)):
        assert max(difference(encoder, how, batch, graph=graph)) < 1e-5
