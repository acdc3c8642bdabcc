"""Extensions over depth: ALBERT at the start, alive, the formulas, pondering; refusals; many depths of one model."""

import collections
import json

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import expit

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer
from albert_tf.checkpoints import load_huggingface, load_official, save_huggingface, save_official
from albert_tf.checkpoints.depth import at_depth
from albert_tf.config import other_depths as plans
from albert_tf.extensions.random_depth import depth_draw
from albert_tf.layers import depth as depth_plans
from albert_tf.training.start import copy_weights
from tests.albert_tf.depth_cases import CONFIGS, FEATURES, LENGTH, TEXTS, alike, encoder_of, small, weights_like
from tests.albert_tf.tiny import assert_alike, table
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
EXTENSIONS = json.loads("""{
    "learned signal": {"step_signal": "learned"},
    "sinusoid": {"step_signal": "sinusoid"},
    "low rank": {"depth_lora_rank": 2},
    "act": {"halting": "act"},
    "tensor2tensor's act": {"halting": "act_t2t", "step_signal": "learned"},
    "all": {"step_signal": "sinusoid", "depth_lora_rank": 2, "depth_plan": "1+1x2+1"}
}""")
each = pytest.mark.parametrize("changes", EXTENSIONS.values(), ids=list(EXTENSIONS))


def started(config, **kwargs):
    """An encoder with the block of `alike(small())` at every place, its extensions at their start."""
    encoder = AlbertEncoder(config, **kwargs)
    copy_weights(alike(small()), encoder)
    return encoder


@pytest.fixture(scope="module")
def albert():
    return alike(small())


@pytest.fixture(scope="module")
def published(albert, tmp_path_factory):
    """A folder with an ALBERT in both published forms."""
    folder = tmp_path_factory.mktemp("published")
    save_official(albert, folder)
    save_huggingface(albert, folder)
    return folder


@each
def test_a_published_checkpoint_answers_as_albert_in_it(changes, albert, published):
    load_it = load_huggingface if "step_signal" in changes else load_official
    found, expected = load_it(published, AlbertEncoder(small(**changes)))(FEATURES), albert(FEATURES)
    for name in ("sequence_output", "pooled_output"):
        assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)


@each
@pytest.mark.few(2)
def test_gradients_reach_what_is_closed(changes):
    model = AlbertPretrainer(started(small(**changes)))
    model.compile(keras.optimizers.SGD(0.1))
    before = {name: np.array(variable) for name, variable in model.encoder.depth_variables.items()}
    assert before
    model.train_on_batch(FEATURES)
    for name, variable in model.encoder.depth_variables.items():
        moved = np.abs(np.array(variable) - before[name]).reshape(len(before[name]) if before[name].ndim else 1, -1)
        # But for what no gradient reaches while something beside it is 0, or the loss may not move below 0.
        if not name.endswith("/a") and "halting" not in name:
            # At every step of which there is a row; a sinusoid is closed by one gate for all.
            assert (moved.max(axis=1) > 1e-8).all(), name


IMPOSSIBLE = table("""
    {"step_signal": "sine"}                       | step_signal 'sine' is none of none, learned, sinusoid
    {"depth_lora_rank": -1}                       | depth_lora_rank must be a whole number of at least 0, in 32 bits, not -1
    {"gate_init": 2.0}                            | gate_init must be from 0 to 1, not 2.0
    {"depth_lora_rank": 4, "sharing": "none"}     | needs blocks that several steps share there
    {"depth_lora_rank": 4, "depth_plan": "4"}     | needs blocks that several steps share there
    {"depth_lora_rank": 4, "sharing": "ffn", "depth_lora_target": "attention"} | target 'attention' needs blocks
    {"num_hidden_layers": 6, "random_depth_min": 7} | random_depth_min 7 is over num_hidden_layers 6
    {"norm_position": "middle"}                   | norm_position 'middle' is none of post, pre
    {"norm": "batch_norm"}                        | norm 'batch_norm' is none of layer_norm, rms_norm
    {"feed_forward": "geglu"}                     | feed_forward 'geglu' is none of mlp, glu
    {"position_type": "rope"}                     | position_type 'rope' is none of absolute, rotary
    {"position_type": "rotary", "hidden_size": 6} | turns pairs of numbers; a head of 3 is odd
    {"halting": 0}                                | halting must be a str, not 0
    {"attention_window": null}                    | attention_window must be a number, not None
    {"depth_lora_rank": false}                    | depth_lora_rank must be a number, not False
    {"untie_biases": 0}                           | untie_biases must be a bool, not 0
    {"rotary_theta": 0.0}                         | rotary_theta must be above 0, not 0.0
    {"use_bias": "no"}                            | use_bias must be a bool, not 'no'
    {"global_attention_every": 2}                 | global_attention_every 2 needs attention_window
    {"halting": "act", "halting_threshold": 1.0}  | halting_threshold must be below 1, not 1.0
    {"halting": "act", "random_depth_min": 2}     | halting 'act' and random_depth_min 2 exclude each other
    {"position_type": "rotary", "position_offset": 2} | position_offset 2 and position_type .*table of pos
    {"attention_window": 3, "global_attention_every": 2, "random_depth_min": 2} | every 2 and random_depth_min 2
    {"attention_window": 4, "position_type": "relative"} | attention_window 4 and position_type 'relative' excl
    {"memory_length": 4, "step_signal": "learned", "position_type": "relative"} | step_signal 'learned' and position_type 'relative' exclude each other: the memory_length 4
    {"reuse_length": 4, "position_type": "relative"} | reuse_length 4 is a part of the memory
    {"position_type": "rotary", "clamp_length": 4} | clamp_length 4 needs position_type 'relative'
    {"attention_type": "both"}                    | attention_type 'both' is none of bi, uni
    {"equilibrium_solver": "newton"}              | none of none, fixed_point, anderson
    {"equilibrium_solver": "anderson", "equilibrium_damping": 0.0}   | above 0 and at most 1
    {"equilibrium_solver": "anderson", "equilibrium_tolerance": 2.0} | below 1
    {"equilibrium_solver": "anderson", "equilibrium_max_steps": 0}   | at least 1
    {"sharing": "none", "random_depth_min": 2}    | random_depth_min 2 .*sharing 'none'
    {"relative_attention_num_buckets": 8, "attention_window": 2} | attention_window .* and relative_attention_num_buckets 8 exclude
    {"relative_attention_num_buckets": 8, "position_type": "rotary"} | position_type .* and relative_attention_num_buckets 8 exclude
    {"relative_attention_num_buckets": 6}         | must be a multiple of 4, .*not 6
""")  # noqa: E501


@pytest.mark.parametrize("changes, message", IMPOSSIBLE)
def test_a_configuration_that_cannot_be_is_named_in_one_line(changes, message):
    with refused(message):
        small(**json.loads(changes))


def test_a_plan_starts_from_what_runs_where_its_blocks_run_first():
    bert, model = alike(small(sharing="none")), AlbertEncoder(small(depth_plan="1+1x2+1"))
    copy_weights(bert, model)
    for ours, theirs in ((0, 0), (1, 1), (2, 3)):
        assert_array_equal(
            model.halves_of("attention")[ours].query.kernel, bert.halves_of("attention")[theirs].query.kernel
        )


def act_by_formula(kind, states, probabilities):
    """One token, by Graves or as tensor2tensor has it: the result of its states after each step, N and R."""
    total, result = 0.0, 0.0
    for step, (state, p) in enumerate(zip(states, probabilities)):
        ends = total + p >= 1 - 0.05 or step == len(states) - 1
        weight = 1 - total if ends else p
        result = state * weight + result * (1 - weight if kind == "act_t2t" else 1)
        if ends:
            return result, step + 1, 1 - total
        total += p


@pytest.mark.parametrize("kind", ["act", "act_t2t"])
def test_halting_is_the_formula(kind):
    encoder = alike(small(num_hidden_layers=6, halting=kind, halting_threshold=0.05, ponder_cost=0.5))
    encoder.halting.gate.assign(0.7)
    encoder.halting.kernel.assign(np.random.default_rng(4).normal(size=16))
    encoder.halting.bias.assign(-0.5)
    outputs = encoder(FEATURES, output_hidden_states=True)
    states = [np.array(state) for state in outputs["hidden_states"]]
    kernel, bias = np.array(encoder.halting.kernel), float(encoder.halting.bias)
    read = states[1:] if kind == "act" else states[:-1]
    probabilities = [0.7 * expit(state @ kernel + bias) for state in read]
    counts, ponder = set(), np.zeros((3, LENGTH))
    for row in range(3):
        for token in range(LENGTH):
            own = [state[row, token] for state in states[1:]], [p[row, token] for p in probabilities]
            result, steps, remainder = act_by_formula(kind, *own)
            assert_allclose(outputs["sequence_output"][row, token], result, atol=1e-5)
            assert outputs["steps"][row, token] == steps
            counts.add(steps)
            ponder[row, token] = steps + remainder
    assert len(counts) > 2, "the case is too simple"
    mask = FEATURES["input_mask"]
    expected = 0.5 * np.mean((ponder * mask).sum(axis=1) / mask.sum(axis=1))
    assert_allclose(encoder.losses[0], expected, rtol=1e-5)


def test_pondering_is_in_the_loss_and_the_history():
    config = small(halting="act", ponder_cost=0.5)
    plain, model = (AlbertPretrainer(started(one)) for one in (small(), config))
    copy_weights(plain, model)
    for one in (plain, model):
        one.compile(keras.optimizers.SGD(0.1))
    batch = {"x": FEATURES, "batch_size": 3, "verbose": 0}
    losses = [one.evaluate(**batch, return_dict=True) for one in (plain, model)]
    # All gates are closed: four steps and a remainder of one.
    assert losses[1]["ponder"] == 5 and losses[1]["halting_steps"] == 4
    assert_allclose(losses[1]["loss"] - losses[0]["loss"], 0.5 * 5, rtol=1e-5)
    history = model.fit(**batch, epochs=3).history
    assert history["ponder"][-1] < history["ponder"][0] and float(model.encoder.halting.gate) > 0
    classifier = AlbertClassifier(model.encoder, 2)
    classifier.compile(keras.optimizers.SGD(0.0))
    logs = classifier.fit(TEXTS, np.array([0, 1, 1]), verbose=0, batch_size=3).history
    assert logs["loss"][0] > 0.5 * logs["ponder"][0] > 0


# One checkpoint, many depths: what is drawn in training, and what a depth of its own is equal to.
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
        (AlbertEncoder, {"depth_plan": "1+1x4+1"}, 3, {"depth_plan": "1+1+1"}),
        (AlbertEncoder, {"step_signal": "sinusoid", "gate_init": 1.0}, 9, {}),
    ],
)
def test_a_depth_is_the_model_built_so(kind, changes, depth, built):
    """Which has the same weights, since the plan shares them all."""
    config = SHARED.replace(**changes)
    model, other = kind(config), kind(config.replace(**built | {"num_hidden_layers": depth}))
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
