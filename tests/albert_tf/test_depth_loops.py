"""The depth loop contract: every configuration gives the same numbers and gradients however its steps are repeated."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertEncoder
from albert_tf.extensions import window
from albert_tf.extensions.random_depth import depth_draw
from albert_tf.layers import depth
from tests.albert_tf.depth_cases import (
    CONFIGS,
    EQUILIBRIA,
    FEATURES,
    alike,
    assert_same,
    encoder_of,
    inputs,
    small,
    trained,
)

pytestmark = pytest.mark.usefixtures("eagerly")
LOOPS = ("unrolled", "loop", "recompute")
# Each part of a configuration, and each extension, in one; what they are made of alone is slow.
ALONE = {
    *("shared", "unshared", "shared attention", "begin, middle, end", "act"),
    *("modern block", "relative", "distance buckets"),
}
QUICK = {("loop", name) for name in set(CONFIGS) - ALONE}
QUICK |= {("recompute", name) for name in ("modern block, packed", "memory", "everything")}


@functools.cache
def eagerly_trained(name):
    """The numbers that all loops are compared with."""
    return trained(encoder_of(name, "unrolled", 0.3), inputs(name))


@pytest.mark.parametrize(
    "walk, name",
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case not in QUICK))
        for case in itertools.product(LOOPS[1:], CONFIGS)
    ],
)
def test_all_loops_give_the_same_numbers_and_gradients(walk, name):
    """With dropout, whose masks are those of the step; and every weight has a gradient."""
    unrolled = eagerly_trained(name)
    assert_same(trained(encoder_of(name, walk, 0.3), inputs(name)), unrolled, 2e-6)
    # Softmax does not see what is added to all scores of a query alike.
    assert {name for name, value in unrolled.items() if not np.abs(value).max() > 1e-7} <= {
        path for path in unrolled if path.endswith("key/bias")
    }


# Relative attention's graph is in test_attention.py.
IN_GRAPHS = {("everything", "loop"), ("implicit", "unrolled")}
COMPILED = [(name, walk) for name in CONFIGS for walk in LOOPS] + [(name, "unrolled") for name in EQUILIBRIA]


@pytest.mark.parametrize(
    "name, walk", [pytest.param(*case, marks=[] if case in IN_GRAPHS else pytest.mark.slow) for case in COMPILED]
)
def test_a_graph_gives_the_numbers_and_gradients_of_eager_steps(name, walk, in_graphs):
    eager, encoder = eagerly_trained(name), encoder_of(name, walk, 0.3)
    run = tf.function(lambda features: trained(encoder, features), autograph=False)
    # Graphs divide and add in another order; gradients of a solved fixed point have many such operations.
    assert_same(run(inputs(name)), eager, 1e-4 if name in EQUILIBRIA else 1e-5)


@pytest.mark.parametrize("walk", LOOPS)
@pytest.mark.slow
def test_xla_compiles_every_loop(walk, in_graphs):
    for name in ("random depth", "shared"):
        encoder = encoder_of(name, walk)
        run = tf.function(
            lambda features, encoder=encoder: trained(encoder, features), autograph=False, jit_compile=True
        )
        assert_same(run(inputs(name)), trained(encoder_of(name, walk), inputs(name)), 1e-5)


def test_a_loop_makes_a_graph_that_does_not_grow_with_depth(in_graphs):
    def nodes(layers, walk):
        encoder = AlbertEncoder(small(num_hidden_layers=layers), walk=walk)
        function = tf.function(lambda ids: encoder({"input_ids": ids})["pooled_output"])
        graph = function.get_concrete_function(tf.TensorSpec([None, None], "int32")).graph.as_graph_def()
        return len(graph.node) + sum(len(body.node_def) for body in graph.library.function)

    assert nodes(12, "loop") == nodes(3, "loop")
    assert nodes(4, "unrolled") > nodes(2, "unrolled") + 2 * 20


def test_local_attention_in_parts_trains_like_the_whole(monkeypatch):
    whole = trained(encoder_of("window every other step", "unrolled"), FEATURES)
    monkeypatch.setattr(window, "PART", 8)
    assert_same(trained(encoder_of("window every other step", "loop"), FEATURES), whole, 1e-5)


def test_a_step_at_a_drawn_depth_is_that_of_the_model_so_deep():
    """Until every depth was drawn, each as the encoder says beforehand."""
    encoder, left = encoder_of("random depth", "loop"), {1, 2, 3, 4}
    for _ in range(30):
        repeats = int(depth_draw(encoder.config)(encoder.seed_generator.state.value))
        if repeats in left:
            fixed = alike(small(depth_plan=f"1+1x{repeats}+1", num_hidden_layers=repeats + 2))
            assert_same(trained(encoder, FEATURES), trained(fixed, FEATURES), 1e-5)
            left.remove(repeats)
        else:
            encoder.seed_generator.next()
        if not left:
            return
    raise AssertionError(f"30 steps drew nothing of {left}")


@pytest.fixture
def calls(monkeypatch):
    """One entry for each block that is run."""
    found, call = [], depth.block
    monkeypatch.setattr(depth, "block", lambda *args, **kwargs: found.append(1) or call(*args, **kwargs))
    return found


@pytest.mark.parametrize("walk", LOOPS)
def test_what_is_not_drawn_is_not_computed(walk, calls):
    encoder = encoder_of("random depth", walk)
    draw = depth_draw(encoder.config)
    while int(draw(encoder.seed_generator.state.value)) != draw.least:
        encoder.seed_generator.next()
    encoder(FEATURES, training=True)
    assert len(calls) == draw.least + 2
    calls.clear()
    encoder(FEATURES)
    assert len(calls) == 6


def test_the_backward_pass_of_recompute_runs_every_block_again(calls):
    for walk, count in (("unrolled", 3), ("recompute", 6)):
        calls.clear()
        trained(encoder_of("shared", walk), FEATURES)
        assert len(calls) == count
