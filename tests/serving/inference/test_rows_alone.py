"""What a row holds stays in that row, even where it is NaN, infinite, or larger than a mask."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from serving.inference import InferenceOptions, make_encoder
from tests.serving.inference.encoders import HAS_AVX512, MODERN, RELATIVE, compiled, make_keras, needs_avx512

pytestmark = pytest.mark.usefixtures("eagerly")
# A piece whose embedding is no number, and one that is [PAD] in a batch.
SPOILT, PADDING = 59, 0
ONE_LAYER = {"num_hidden_layers": 1}
KINDS = {
    "plain": {},
    "windows": {"attention_window": 2, "global_attention_every": 2, "num_hidden_layers": 2},
    "rotary": MODERN,
    "relative": RELATIVE,
    "one-directional": RELATIVE | {"attention_type": "uni"},
}


def spoil(encoder, piece, value):
    table = encoder.embeddings.word_embeddings
    table.assign(tf.tensor_scatter_nd_update(table, [[piece]], [[value] * table.shape[1]]))


def answer(encoder, rows):
    """The vectors of each row's first three tokens."""
    longest = max(map(len, rows))
    ids = np.array([row + [PADDING] * (longest - len(row)) for row in rows], "int32")
    return encoder(ids, np.array([len(row) for row in rows], "int32"))["sequence_output"].numpy()[:, :3]


@pytest.mark.parametrize("kind, value", [*((kind, np.nan) for kind in KINDS), ("plain", 1e20)])
def test_a_spoilt_row_or_padding_spoils_no_other(kind, value):
    keras_encoder = make_keras(**ONE_LAYER | KINDS[kind])
    whole = answer(make_encoder(keras_encoder), ROWS)
    for piece in (SPOILT, PADDING):
        spoil(keras_encoder, piece, value)
    encoder = make_encoder(keras_encoder)
    # Shorter, as long, and longer rows, before it and after it.
    found = answer(encoder, [*ROWS[:2], [5, SPOILT, 6, 7], [SPOILT] * 9, *ROWS[2:]])
    # Without AVX-512, float32 products of other numbers of rows round otherwise.
    assert_allclose(np.delete(found, (2, 3), axis=0), whole, rtol=0, atol=0 if HAS_AVX512 else 2e-5)


ROWS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [20, 21, 22, 23], [30, 31, 32, 33, 34]]


@pytest.mark.parametrize("compute", [pytest.param("bfloat16", marks=needs_avx512), "int8"])
def test_other_arithmetics_spoil_no_other_row_either(compute, in_graphs):
    keras_encoder = make_keras(hidden_size=64, num_attention_heads=2, **ONE_LAYER)
    spoil(keras_encoder, SPOILT, np.nan)
    encoder = compiled(make_encoder(keras_encoder, InferenceOptions(compute)), [None, None], [None])
    whole, found = answer(encoder, ROWS), answer(encoder, [ROWS[0], [5, SPOILT, 6, 7], *ROWS[1:]])
    assert np.isfinite(whole).all()
    assert_array_equal(np.delete(found, 1, axis=0), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_stop_scores_of_any_size(kind):
    keras_encoder = make_keras(**ONE_LAYER | KINDS[kind])
    for attention in keras_encoder.halves_of("attention"):
        for layer in (attention.query, attention.key):
            layer.kernel.assign(layer.kernel * 300)
    encoder = make_encoder(keras_encoder)
    together = answer(encoder, ROWS)
    alone = np.concatenate([answer(encoder, [row]) for row in ROWS])
    assert_allclose(together, alone, atol=2e-5)
