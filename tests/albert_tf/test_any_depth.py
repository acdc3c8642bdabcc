"""One checkpoint, many depths: what is drawn in training, and what a depth of its own is equal to."""

import collections

import keras
import numpy as np
import pytest
from scipy import stats

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertTokenClassifier, LearnedExit
from albert_tf.checkpoints.depth import at_depth
from albert_tf.layers import depth as plans
from tests.albert_tf.depth_cases import CONFIGS, FEATURES, alike, encoder_of, small
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(**CONFIGS["random depth"])
SHARED = small(num_hidden_layers=6)
TEXTS = {name: FEATURES[name] for name in ("input_ids", "input_mask")}
LABELS = np.array([0, 1, 1])


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.parametrize(
    ("changes", "depth", "plan", "kept"),
    [
        ({}, 4, "", [0, 1, 2, 3]),
        ({}, 9, "", [0, 1, 2, 3, 4, 5]),
        ({"inner_group_num": 2}, 2, "", [0, 1, 2, 3]),
        ({"depth_plan": "1+1x4+1"}, 4, "1+1x2+1", [0, 1, 2, 5]),
        ({"depth_plan": "1+1x4+1"}, 3, "1+1+1", [0, 1, 5]),
        ({"depth_plan": "1+2x2+1"}, 8, "1+2x3+1", [0, 1, 2, 3, 4, 5]),
        ({"depth_plan": "2x3r"}, 8, "2x4r", [0, 1, 2, 3, 4, 5]),
        ({"depth_plan": "2x3r"}, 4, "2x2r", [0, 1, 4, 5]),
        ({"depth_plan": "1x6r"}, 5, "1x5r", [0, 1, 2, 3, 4]),
    ],
)
def test_a_depth_changes_how_often_the_repeated_blocks_run(changes, depth, plan, kept):
    config = SHARED.replace(**changes)
    other = plans.at_depth(config, depth)
    assert (other.num_hidden_layers, other.depth_plan) == (depth, plan)
    assert plans.kept_steps(config, depth) == kept
    if depth < 6:
        assert [plans.plan(config)[step] for step in kept] == plans.plan(other)


@pytest.mark.parametrize(
    ("changes", "depth", "words"),
    [
        ({"sharing": "none"}, 4, "sharing 'none'"),
        ({"sharing": "attention"}, 4, "sharing 'attention'"),
        ({"num_hidden_groups": 2}, 4, "in 2 groups"),
        ({"depth_plan": "1x3+1x3"}, 4, "'1x3"),
        ({"depth_plan": "2+2x2"}, 5, "depths 4, 6, 8 and so on"),
        ({"depth_plan": "2+2x2"}, 2, "depths 4, 6, 8 and so on"),
    ],
)
def test_depths_that_a_plan_has_not_are_refused(changes, depth, words):
    with pytest.raises(UserError, match=rf"depth {depth} cannot be run.*{words}"):
        at_depth(AlbertEncoder(SHARED.replace(**changes)), depth)


def test_random_depths_of_a_plan_without_are_refused():
    with pytest.raises(UserError, match=r"random_depth_min 2 .*sharing 'none'"):
        AlbertEncoder(SHARED.replace(sharing="none", random_depth_min=2))


@pytest.mark.slow
def test_all_depths_are_drawn_as_often():
    draw = plans.depth_draw(SHARED.replace(random_depth_min=2))
    generator = keras.random.SeedGenerator(11)
    found = collections.Counter(int(draw(generator.next())) for _ in range(1500))
    assert sorted(found) == [2, 3, 4, 5, 6]
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


def test_a_seed_decides_the_depths_and_no_choice_draws_nothing():
    draw = plans.depth_draw(CONFIG)
    seeds = [keras.ops.convert_to_tensor([7, i], "uint32") for i in range(20)]
    first, again = ([int(draw(seed)) for seed in seeds] for _ in range(2))
    assert first == again and set(first) == {1, 2, 3, 4}
    assert plans.depth_draw(CONFIG.replace(random_depth_min=6)) is None
    assert plans.depth_draw(SHARED) is None
    assert tuple(plans.depth_draw(SHARED.replace(depth_plan="2x3", random_depth_min=3))) == (0, 2, 3)


def test_evaluation_and_requested_states_run_all_steps():
    drawn, plain = encoder_of("random depth", "unrolled"), alike(CONFIG.replace(random_depth_min=0))
    np.testing.assert_array_equal(drawn(FEATURES)["sequence_output"], plain(FEATURES)["sequence_output"])
    everything = plain(FEATURES)["hidden_states"]
    for found, expected in zip(drawn(FEATURES, training=True, output_hidden_states=True)["hidden_states"], everything):
        np.testing.assert_array_equal(found, expected)
    # Where the depth is drawn, steps that are not run repeat the state.
    assert len(drawn(FEATURES, training=True)["hidden_states"]) == 7
    exiting = AlbertClassifier(AlbertEncoder(CONFIG), 4, early_exit=True)
    assert len(exiting(TEXTS, training=True)) == 6


def test_fit_goes_on_drawing_where_the_saved_model_was(tmp_path):
    model = AlbertClassifier(encoder_of("random depth", "loop"), 2, 0.0)
    model.compile(keras.optimizers.SGD(0.01))
    model.fit(TEXTS, LABELS, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    states = [numpy(one.encoder.seed_generator.state) for one in (model, loaded)]
    np.testing.assert_array_equal(*states)
    assert states[0][1] == 2 and loaded.encoder.config.random_depth_min == 3


@pytest.mark.parametrize(
    ("kind", "depth"), [(AlbertPretrainer, 2), (AlbertEncoder, 9), (AlbertTokenClassifier, 2), (AlbertPretrainer, 9)]
)
def test_a_depth_is_the_model_built_so(kind, depth):
    """Which has the same weights, since the plan shares them all."""
    options = {"num_classes": 3} if kind is AlbertTokenClassifier else {}
    model, built = kind(SHARED, **options), kind(SHARED.replace(num_hidden_layers=depth), **options)
    built.set_weights(model.get_weights())
    features = {"input_ids": FEATURES["input_ids"]}
    outputs = [keras.tree.flatten(one(features)) for one in (at_depth(model, depth), built)]
    for found, expected in zip(outputs[0], outputs[1], strict=True):
        np.testing.assert_array_equal(numpy(found), numpy(expected))
    assert at_depth(model, 6) is model


def test_a_middle_is_run_more_or_less_often():
    changes = {"random_depth_min": 0}
    encoder = alike(CONFIG.replace(**changes))
    for depth in (3, 8):
        built = alike(CONFIG.replace(depth_plan=f"1+1x{depth - 2}+1", num_hidden_layers=depth, **changes))
        found, expected = (one(FEATURES)["sequence_output"] for one in (at_depth(encoder, depth), built))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("exits", [True, LearnedExit()])
def test_exits_stay_with_their_steps(exits):
    model = AlbertClassifier(AlbertEncoder(SHARED), 4, 0.0, exits, labels=list("abcd"))
    other = at_depth(model, 3)
    assert len(other.exit_heads) == 3 and other.labels == model.labels and other.learned_exit == model.learned_exit
    for found, expected in zip(other.exit_logits(TEXTS), model.exit_logits(TEXTS)[:3], strict=True):
        np.testing.assert_array_equal(found, expected)
    if model.exit_gate:
        expected = model.exit_probabilities(TEXTS)[:, :2]
        np.testing.assert_allclose(other.exit_probabilities(TEXTS)[:, :2], expected, atol=1e-6)
    with pytest.raises(UserError, match=r"depth 7 cannot be run: .* weights of their own"):
        at_depth(model, 7)


def test_exits_of_a_middle_that_runs_less_often():
    """The last block's head is still its head."""
    model = AlbertClassifier(AlbertEncoder(CONFIG), 4, 0.0, True)
    other = at_depth(model, 4)
    for place, step in enumerate((0, 1, 2, 5)):
        np.testing.assert_array_equal(other.exit_heads[place].kernel, model.exit_heads[step].kernel)


EXTENSIONS = {
    "step signal": {"step_signal": "learned"},
    "hyper-connections": {"hyper_connections": 2},
    "low rank": {"depth_lora_rank": 2},
}


@pytest.mark.parametrize(
    ("extension", "plan", "depth"),
    [("step signal", "1+1x4+1", 4), ("hyper-connections", "", 3), ("low rank", "1+1x4+1", 4)],
)
def test_what_a_step_has_of_its_own_stays_with_it(extension, plan, depth):
    """The states are those of the whole model up to the first step left out."""
    encoder = alike(SHARED.replace(depth_plan=plan, **EXTENSIONS[extension]))
    other, kept = at_depth(encoder, depth), plans.kept_steps(encoder.config, depth)
    assert other.config.num_steps == depth
    states = [one(FEATURES)["hidden_states"] for one in (other, encoder)]
    for found, expected in list(zip(*states))[: 1 + next((i for i in range(depth) if kept[i] != i), depth)]:
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # And the last step's own, whose input is another.
    for name, variable in other.depth_variables.items():
        before = encoder.depth_variables[name]
        if variable.shape[:1] == (depth,):
            np.testing.assert_array_equal(variable, numpy(before)[kept])
    with pytest.raises(UserError, match=r"depth 9 cannot be run: .* weights of their own"):
        at_depth(encoder, 9)


def test_a_middle_that_would_run_once_keeps_no_low_rank():
    with pytest.raises(UserError, match=r"depth 3 cannot be run: .*depth_lora"):
        at_depth(alike(CONFIG.replace(depth_lora_rank=2)), 3)


def test_a_sinusoid_goes_on_and_an_equilibrium_has_no_depth():
    encoder = alike(SHARED.replace(step_signal="sinusoid", gate_init=1.0))
    built = AlbertEncoder(SHARED.replace(step_signal="sinusoid", num_hidden_layers=9))
    built.set_weights(encoder.get_weights())
    np.testing.assert_array_equal(at_depth(encoder, 9)(FEATURES)["sequence_output"], built(FEATURES)["sequence_output"])
    with pytest.raises(UserError, match="equilibrium"):
        at_depth(AlbertEncoder(SHARED.replace(equilibrium_solver="fixed_point")), 3)
