"""One checkpoint, many depths: what is drawn in training, and what a depth of its own is equal to."""

import collections
import json

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertTokenClassifier
from albert_tf.checkpoints.depth import at_depth
from albert_tf.config import other_depths as plans
from albert_tf.extensions.random_depth import depth_draw
from albert_tf.layers import depth as depth_plans
from tests.albert_tf.depth_cases import CONFIGS, FEATURES, TEXTS, alike, encoder_of, small, weights_like
from tests.albert_tf.tiny import assert_alike, table
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(**CONFIGS["random depth"])
SHARED = small(num_hidden_layers=6)


# A configuration of six layers, a depth, its plan there, and the steps that are kept.
DEPTHS = table("""
    {}                        | 4 |         | 0 1 2 3
    {}                        | 9 |         | 0 1 2 3 4 5
    {"inner_group_num": 2}    | 2 |         | 0 1 2 3
    {"depth_plan": "1+1x4+1"} | 4 | 1+1x2+1 | 0 1 2 5
    {"depth_plan": "1+1x4+1"} | 3 | 1+1+1   | 0 1 5
    {"depth_plan": "1+2x2+1"} | 8 | 1+2x3+1 | 0 1 2 3 4 5
    {"depth_plan": "2x3r"}    | 8 | 2x4r    | 0 1 2 3 4 5
    {"depth_plan": "2x3r"}    | 4 | 2x2r    | 0 1 4 5
    {"depth_plan": "1x6r"}    | 5 | 1x5r    | 0 1 2 3 4
""")


@pytest.mark.parametrize("changes, depth, plan, kept", DEPTHS)
def test_a_depth_changes_how_often_the_repeated_blocks_run(changes, depth, plan, kept):
    config, depth, kept = SHARED.replace(**json.loads(changes)), int(depth), [int(step) for step in kept.split()]
    other = plans.at_depth(config, depth)
    assert (other.num_hidden_layers, other.depth_plan) == (depth, plan)
    assert plans.kept_steps(config, depth) == kept
    if depth < 6:
        assert [depth_plans.plan(config)[step] for step in kept] == depth_plans.plan(other)


NO_DEPTHS = table("""
    {"sharing": "none"}       | 4 | sharing 'none'
    {"sharing": "attention"}  | 4 | sharing 'attention'
    {"num_hidden_groups": 2}  | 4 | in 2 groups
    {"depth_plan": "1x3+1x3"} | 4 | '1x3
    {"depth_plan": "2+2x2"}   | 5 | depths 4, 6, 8 and so on
    {"depth_plan": "2+2x2"}   | 2 | depths 4, 6, 8 and so on
    {"equilibrium_solver": "fixed_point"} | 3 | equilibrium
    {"depth_plan": "1+1x4+1", "random_depth_min": 3, "depth_lora_rank": 2} | 3 | depth_lora
""")


@pytest.mark.parametrize("changes, depth, words", NO_DEPTHS)
def test_depths_that_a_plan_has_not_are_refused(changes, depth, words):
    with refused(f"depth {depth} cannot be run.*{words}"):
        at_depth(AlbertEncoder(SHARED.replace(**json.loads(changes))), int(depth))


@pytest.mark.slow
def test_all_depths_are_drawn_as_often():
    draw = depth_draw(SHARED.replace(random_depth_min=2))
    generator = keras.random.SeedGenerator(11)
    found = collections.Counter(int(draw(generator.next())) for _ in range(1500))
    assert sorted(found) == [2, 3, 4, 5, 6]
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


def test_a_seed_decides_the_depths_and_no_choice_draws_nothing():
    draw = depth_draw(CONFIG)
    seeds = [keras.ops.convert_to_tensor([7, i], "uint32") for i in range(20)]
    first, again = ([int(draw(seed)) for seed in seeds] for _ in range(2))
    assert first == again and set(first) == {1, 2, 3, 4}
    assert depth_draw(CONFIG.replace(random_depth_min=6)) is None
    assert depth_draw(SHARED) is None
    assert tuple(depth_draw(SHARED.replace(depth_plan="2x3", random_depth_min=3))) == (0, 2, 3)


def test_evaluation_and_requested_states_run_all_steps():
    drawn, plain = encoder_of("random depth", "unrolled"), alike(CONFIG.replace(random_depth_min=0))
    assert_array_equal(drawn(FEATURES)["sequence_output"], plain(FEATURES)["sequence_output"])
    everything = plain(FEATURES)["hidden_states"]
    for found, expected in zip(drawn(FEATURES, training=True, output_hidden_states=True)["hidden_states"], everything):
        assert_array_equal(found, expected)
    # Where the depth is drawn, steps that are not run repeat the state.
    assert len(drawn(FEATURES, training=True)["hidden_states"]) == 7
    exiting = AlbertClassifier(CONFIG, 4, early_exit=True)
    assert len(exiting(TEXTS, training=True)) == 6


@pytest.mark.parametrize(
    "kind, changes, depth, built",
    [
        (AlbertPretrainer, {}, 2, {}),
        (AlbertEncoder, {}, 9, {}),
        (AlbertTokenClassifier, {}, 2, {}),
        (AlbertEncoder, {"depth_plan": "1+1x4+1"}, 3, {"depth_plan": "1+1+1"}),
        (AlbertEncoder, {"step_signal": "sinusoid", "gate_init": 1.0}, 9, {}),
    ],
)
def test_a_depth_is_the_model_built_so(kind, changes, depth, built):
    """Which has the same weights, since the plan shares them all."""
    config, options = SHARED.replace(**changes), [3] * (kind is AlbertTokenClassifier)
    model, other = kind(config, *options), kind(config.replace(**built | {"num_hidden_layers": depth}), *options)
    other.set_weights(weights_like(model))
    model.set_weights(other.get_weights())
    features = {"input_ids": FEATURES["input_ids"]}
    assert_alike(at_depth(model, depth)(features), other(features), atol=0)
    assert at_depth(model, 6) is model


def test_exits_stay_with_their_steps():
    model = AlbertClassifier(AlbertEncoder(SHARED), 4, 0.0, True, labels=list("abcd"))
    other = at_depth(model, 3)
    assert len(other.exit_heads) == 3 and other.labels == model.labels
    assert_alike(other.exit_logits(TEXTS), model.exit_logits(TEXTS)[:3], atol=0)
    with refused(r"depth 7 cannot be run: .* weights of their own"):
        at_depth(model, 7)


OWN = table("""
    {"step_signal": "learned", "depth_plan": "1+1x4+1"} | 4
    {"depth_lora_rank": 2, "depth_plan": "1+1x4+1"}     | 4
    {"position_type": "relative", "untie_biases": true} | 4
""")


@pytest.mark.parametrize("changes, depth", OWN)
def test_what_a_step_has_of_its_own_stays_with_it(changes, depth):
    """The states are those of the whole model up to the first step left out."""
    encoder, depth = alike(SHARED.replace(**json.loads(changes))), int(depth)
    other, kept = at_depth(encoder, depth), plans.kept_steps(encoder.config, depth)
    assert other.config.num_steps == depth
    states = [one(FEATURES)["hidden_states"] for one in (other, encoder)]
    for found, expected in list(zip(*states))[: 1 + next((i for i in range(depth) if kept[i] != i), depth)]:
        assert_allclose(found, expected, atol=1e-6)
    # And the last step's own, whose input is another.
    for name, variable in other.depth_variables.items():
        before = encoder.depth_variables[name]
        if variable.shape[:1] == (depth,):
            assert_array_equal(variable, np.array(before)[kept])
    with refused(r"depth 9 cannot be run: .* weights of their own"):
        at_depth(encoder, 9)
