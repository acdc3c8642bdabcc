"""Floating-point operations of rows whose number of steps is not that of their plan."""

import pytest

from albert_tf import AlbertConfig
from albert_tf.analysis.cost import flops
from albert_tf.analysis.run_cost import inference_flops, training_flops

PLAIN = AlbertConfig(hidden_size=16, num_hidden_layers=12, num_attention_heads=2, intermediate_size=32)


@pytest.mark.parametrize("config", [PLAIN, PLAIN.replace(sharing="none"), PLAIN.replace(depth_plan="1+1x10+1")])
def test_what_walks_its_plan_costs_its_plan(config):
    assert inference_flops(config, 64, {}) == flops(config, 64).total
    assert training_flops(config, 64, 10, {}) == 30 * flops(config, 64).total


@pytest.mark.parametrize("plan, others", [("", 0), ("1+1x10+1", 2)])
def test_an_equilibrium_costs_the_steps_that_it_makes(plan, others):
    """Steps of the solver have no gradient, and the five of the phantom gradient come besides."""
    config = PLAIN.replace(depth_plan=plan, equilibrium_solver="fixed_point", equilibrium_max_steps=30)
    whole = flops(PLAIN.replace(depth_plan=plan), 64)
    beside = whole.projection + whole.pooler
    step = (whole.total - beside) / 12
    result = {"equilibrium_steps": 7.5}
    assert inference_flops(config, 64, result) == pytest.approx(beside + step * (others + 7.5))
    assert training_flops(config, 64, 2, result) == pytest.approx(2 * (3 * (beside + step * (others + 5)) + step * 7.5))


@pytest.mark.parametrize("kind, distances", [("bi", 10 + 4 + 10), ("uni", 10 + 4 + 1)])
def test_queries_and_memory_of_permutations_cost_what_they_compute(kind, distances):
    """Ten tokens, three queries, four places of memory, counted by hand; without both there is nothing beside."""
    config = AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=4, num_hidden_layers=3, num_attention_heads=2, intermediate_size=8,
        position_type="relative", attention_type=kind,
    )  # fmt: skip
    settings = {"objective": "permutation"}
    plain = training_flops(config, 10, 2, {})
    assert training_flops(config, 10, 2, {}, settings) == plain == training_flops(config, 10, 2, {}, {}, predictions=3)
    whole = flops(config, 10)
    query_or_output, key_or_value = (10 + 3) * 4 * 4, (10 + 4) * 4 * 4
    scores = (10 + 3) * 4 * (2 * (10 + 4) + distances)
    feed_forward = 2 * (10 + 3) * 4 * 8
    steps = 3 * 2 * (2 * query_or_output + 2 * key_or_value + scores + feed_forward)
    counted = training_flops(config, 10, 2, {}, settings | {"memory_length": 4}, predictions=3)
    assert counted == pytest.approx(2 * 3 * (whole.projection + whole.pooler + steps))
