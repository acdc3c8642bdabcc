"""Shared blocks with low rank by depth out of unshared ones: nothing is lost at full rank, the least at any other.

And blocks brought into one order first: the same function, found again after any shuffle.
"""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertEncoder
from albert_tf.checkpoints.alignment import align_blocks
from albert_tf.checkpoints.sharing import share_blocks, unshare_blocks
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf.depth_cases import FEATURES, alike, small
from tests.albert_tf.tiny import table
from tests.refusals import refused

PLANS = json.loads("""{
    "one block": {"num_hidden_layers": 3},
    "begin, middle, end": {"num_hidden_layers": 6, "depth_plan": "1+1x4+1"},
    "two in turn": {"num_hidden_layers": 6, "depth_plan": "2x3"},
    "two in turn, reversed": {"num_hidden_layers": 6, "depth_plan": "2x3r"},
    "groups": {"num_hidden_layers": 4, "num_hidden_groups": 2},
    "attention": {"num_hidden_layers": 3, "sharing": "attention"},
    "feed-forward": {"num_hidden_layers": 6, "sharing": "ffn", "depth_plan": "1+1x4+1"}
}""")
FULL = 24
each_plan = pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS.keys())


def unshared(layers, equal=True, **changes):
    """BERT's sharing; `equal`: each block has the biases and norms of the first, which means cannot tell apart."""
    encoder = alike(small(sharing="none", num_hidden_layers=layers, **changes))
    named = named_variables(encoder)
    for name, variable in named.items():
        half, _, rest = name.partition("/")
        if equal and half.rstrip("0123456789") in ("attention_", "feed_forward_") and not rest.endswith("kernel"):
            variable.assign(named[f"{half.rpartition('_')[0]}_0/{rest}"])
    return encoder


@each_plan
@pytest.mark.few(2)
def test_at_full_rank_it_is_the_same_model(changes):
    source = unshared(changes["num_hidden_layers"])
    other = share_blocks(source, small(depth_lora_rank=FULL, **changes))
    assert len(other.halves_of("attention")) + len(other.halves_of("feed_forward")) < 2 * len(source.steps)
    found, expected = other(FEATURES), source(FEATURES)
    for name in ("sequence_output", "pooled_output"):
        assert_allclose(found[name], expected[name], atol=1e-4, err_msg=name)


@each_plan
@pytest.mark.few(2)
def test_at_a_lower_rank_what_is_lost_is_the_truncated_singular_values(changes):
    source = unshared(changes["num_hidden_layers"], equal=False)
    other = share_blocks(source, small(depth_lora_rank=3, **changes))
    named, adapted = named_variables(source), 0
    for half in ("attention", "feed_forward"):
        for number, part in enumerate(other.halves_of(half)):
            for adapter in part.own_extension_layers():
                name = adapter.name.removeprefix("depth_lora_")
                kernels = np.stack([np.array(named[f"{half}_{step}/{name}/kernel"]) for step in adapter.steps])
                values = np.linalg.svd(kernels - kernels.mean(axis=0), compute_uv=False)
                shared = np.array(named_variables(other)[f"{half}_{number}/{name}/kernel"])
                lost = kernels - shared - np.array(adapter.a) @ np.array(adapter.b)
                expected = np.sqrt((values[:, 3:] ** 2).sum(axis=1))
                assert_allclose(np.linalg.norm(lost, axis=(1, 2)), expected, rtol=1e-4)
                adapted += 1
    assert adapted


@pytest.mark.parametrize(
    "changes", [*PLANS.values(), PLANS["one block"] | {"random_depth_min": 2}], ids=[*PLANS, "random depth"]
)
@pytest.mark.few(2)
def test_unshared_again_each_step_has_a_kernel_with_its_low_rank(changes):
    shared = alike(small(depth_lora_rank=3, step_signal="learned", **changes))
    merged = unshare_blocks(shared)
    assert (merged.config.depth_lora_rank, merged.config.sharing, len(merged.blocks)) == (0, "none", len(shared.steps))
    for name, values in shared(FEATURES).items():
        assert_allclose(merged(FEATURES)[name], values, atol=2e-5, err_msg=name)


def test_what_has_no_steps_is_not_unshared():
    with refused("until an equilibrium"):
        unshare_blocks(AlbertEncoder(small(num_hidden_layers=3, equilibrium_solver="fixed_point")))


OTHERS = table("""
    {"num_hidden_layers": 4}                           | the model runs 3 blocks, its new configuration 4
    {"num_hidden_layers": 3, "hidden_size": 32}        | hidden_size 32 .model: 16.
    {"num_hidden_layers": 3, "norm_position": "pre"}   | norm_position 'pre' .model: 'post'.
""")


@pytest.mark.parametrize("changes, message", OTHERS)
def test_another_model_is_refused(changes, message):
    with refused(message):
        share_blocks(AlbertEncoder(small(sharing="none", num_hidden_layers=3)), small(**json.loads(changes)))


ALIGNED = small(embedding_size=16, num_hidden_layers=3, num_attention_heads=4, sharing="none")


def hidden(encoder):
    return np.array(encoder(FEATURES)["sequence_output"])


# Heads stay where each has its own column of a table of distances.
BUCKETS = {"relative_attention_num_buckets": 8}


@pytest.mark.parametrize(
    "changes", [{}, {"feed_forward": "glu"}, {"position_type": "rotary"}, {"use_bias": False}, BUCKETS]
)
def test_the_function_stays(changes):
    encoder = alike(ALIGNED.replace(**changes))
    aligned = align_blocks(encoder, [range(3)])
    assert_allclose(hidden(aligned), hidden(encoder), atol=2e-5)
    changed = [
        name for name, variable in named_variables(aligned).items()
        if not np.array_equal(variable, named_variables(encoder)[name])
    ]  # fmt: skip
    assert changed and not any(name.startswith(("attention_0", "feed_forward_0", "embeddings")) for name in changed)


def test_shuffled_copies_of_a_block_are_one_block_again():
    """Units and heads in another order, heads turned: after alignment the mean is the block itself."""
    encoder, random = alike(ALIGNED), np.random.default_rng(5)
    named = named_variables(encoder)
    width, heads = 4, 4
    for block in (1, 2):
        units, order = random.permutation(24), random.permutation(heads)
        turns = [np.linalg.qr(random.normal(size=(heads, width, width)))[0] for _ in range(2)]
        turns = {"query": turns[0], "key": turns[0], "value": turns[1]}
        for name, variable in named.items():
            half, _, rest = name.partition("/")
            if half not in (f"attention_{block}", f"feed_forward_{block}"):
                continue
            value, layer = np.array(named[f"{half[:-1]}0/{rest}"]), rest.split("/")[0]
            if layer == "intermediate":
                value = value[..., units]
            elif layer in turns:
                value = np.einsum("ihw,hwv->ihv", value.reshape(-1, heads, width)[:, order], turns[layer])
            elif half.startswith("attention") and rest == "output/kernel":
                value = np.einsum("hwo,hwv->hvo", value.reshape(heads, width, -1)[order], turns["value"])
            elif rest == "output/kernel":
                value = value[units]
            variable.assign(value.reshape(variable.shape))
    shared = encoder.config.replace(sharing="all")
    assert np.abs(hidden(share_blocks(encoder, shared)) - hidden(encoder)).max() > 0.1
    aligned = align_blocks(encoder, [range(3)])
    assert_allclose(hidden(share_blocks(aligned, shared)), hidden(encoder), atol=1e-4)


def test_shared_blocks_are_refused():
    with refused("share no block"):
        align_blocks(AlbertEncoder(ALIGNED.replace(sharing="all")), [range(3)])
