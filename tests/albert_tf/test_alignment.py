"""Blocks brought into one order: the same function, found again after any shuffle."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertEncoder
from albert_tf.checkpoints.alignment import align_blocks
from albert_tf.checkpoints.sharing import share_blocks
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf.tiny import small
from tests.refusals import refused

CONFIG = small(embedding_size=16, num_hidden_layers=3, num_attention_heads=4, sharing="none", initializer_range=0.3)
IDS = np.arange(20).reshape(2, 10).astype("int32")


def random_encoder(**changes):
    encoder, random = AlbertEncoder(CONFIG.replace(**changes), seed=1), np.random.default_rng(2)
    for name, variable in named_variables(encoder).items():
        if name.endswith("bias"):
            variable.assign(random.normal(size=variable.shape) * 0.3)
    return encoder


def hidden(encoder):
    return np.array(encoder({"input_ids": IDS})["sequence_output"])


# Heads stay where each has its own column of a table of distances.
BUCKETS = {"relative_attention_num_buckets": 8}


@pytest.mark.parametrize(
    "changes", [{}, {"feed_forward": "glu"}, {"position_type": "rotary"}, {"use_bias": False}, BUCKETS]
)
def test_the_function_stays(changes):
    encoder = random_encoder(**changes)
    aligned = align_blocks(encoder, [range(3)])
    assert_allclose(hidden(aligned), hidden(encoder), atol=2e-5)
    changed = [
        name for name, variable in named_variables(aligned).items()
        if not np.array_equal(variable, named_variables(encoder)[name])
    ]  # fmt: skip
    assert changed and not any(name.startswith(("attention_0", "feed_forward_0", "embeddings")) for name in changed)


def test_shuffled_copies_of_a_block_are_one_block_again():
    """Units and heads in another order, heads turned: after alignment the mean is the block itself."""
    encoder, random = random_encoder(), np.random.default_rng(5)
    named = named_variables(encoder)
    width, heads = 4, 4
    for block in (1, 2):
        for name, variable in named.items():
            if name.startswith((f"attention_{block}/", f"feed_forward_{block}/")):
                half, _, rest = name.partition("/")
                variable.assign(np.array(named[f"{half[:-1]}0/{rest}"]))
        units, order = random.permutation(24), random.permutation(heads)
        turns = [np.linalg.qr(random.normal(size=(heads, width, width)))[0] for _ in range(2)]
        for part in ("kernel", "bias"):
            variable = named[f"feed_forward_{block}/intermediate/{part}"]
            variable.assign(np.array(variable)[..., units])
            for name, turn in (("query", turns[0]), ("key", turns[0]), ("value", turns[1])):
                variable = named[f"attention_{block}/{name}/{part}"]
                value = np.array(variable).reshape(-1, heads, width)[:, order]
                variable.assign(np.einsum("ihw,hwv->ihv", value, turn).reshape(variable.shape))
        output = named[f"feed_forward_{block}/output/kernel"]
        output.assign(np.array(output)[units])
        output = named[f"attention_{block}/output/kernel"]
        value = np.array(output).reshape(heads, width, -1)[order]
        output.assign(np.einsum("hwo,hwv->hvo", value, turns[1]).reshape(output.shape))
    shared = encoder.config.replace(sharing="all")
    assert np.abs(hidden(share_blocks(encoder, shared)) - hidden(encoder)).max() > 0.1
    aligned = align_blocks(encoder, [range(3)])
    assert_allclose(hidden(share_blocks(aligned, shared)), hidden(encoder), atol=1e-4)


def test_shared_blocks_are_refused():
    with refused("share no block"):
        align_blocks(AlbertEncoder(CONFIG.replace(sharing="all")), [range(3)])
