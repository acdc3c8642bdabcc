"""The encoder: answers on request, padding, packing, half precision, dropout, files, and the plan of its steps."""

import json

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertEncoder, AlbertPretrainer, AlbertTokenClassifier, XlnetPretrainer
from albert_tf.base.layers import dropout, site_seed
from albert_tf.layers.depth import plan, segments
from tests.albert_tf.depth_cases import (
    CONFIGS,
    EQUILIBRIA,
    EVERYTHING,
    FEATURES,
    LENGTH,
    MODERN,
    TOKENS,
    alike,
    inputs,
    small,
    weights_like,
)
from tests.albert_tf.tiny import assert_alike, numbers, table

pytestmark = pytest.mark.usefixtures("eagerly")
RNG = np.random.default_rng(3)


def test_hidden_states_and_attentions_on_request():
    config = small(inner_group_num=2, num_hidden_layers=3)
    outputs = alike(config)(FEATURES, output_attentions=True)
    assert len(outputs["hidden_states"]) == 7 and len(outputs["attentions"]) == 6
    for probabilities in outputs["attentions"]:
        assert probabilities.shape == (3, 2, LENGTH, LENGTH)
        assert_allclose(np.sum(probabilities, axis=-1), 1, atol=1e-5)
        assert np.max(np.asarray(probabilities)[2, :, :, 5:]) == 0
    assert_array_equal(outputs["hidden_states"][-1], outputs["sequence_output"])
    loop = alike(config, walk="loop")
    assert "hidden_states" not in loop(FEATURES)
    asked = loop(FEATURES, output_hidden_states=True, output_attentions=True)
    assert_allclose(asked["attentions"][-1], outputs["attentions"][-1], atol=1e-6)
    assert "hidden_states" not in alike(config)(FEATURES, output_hidden_states=False)


OFFSET = {"position_offset": 2, "max_position_embeddings": 12, "type_vocab_size": 1}
OPEN = {"step_signal": "learned", "depth_lora_rank": 2}


@pytest.mark.parametrize(
    "changes, walk, padding, counts",
    [
        ({"max_position_embeddings": 12}, "loop", 3, False),
        (MODERN, "loop", 0, False),
        (MODERN, "unrolled", 2, True),
        (OFFSET, "unrolled", 1, False),
        (OPEN, "loop", 0, False),
        ({"halting": "act", "num_hidden_layers": 3}, "unrolled", 0, False),
    ],
)
def test_a_packed_row_gives_each_sequence_its_own_numbers(changes, walk, padding, counts):
    """`counts`: the caller says each token's position within its sequence."""
    encoder, lengths = alike(small(**changes), walk=walk), [5, 2, 6]
    places = np.concatenate([np.arange(length) for length in lengths])
    packed = {"input_ids": RNG.integers(5, 40, 13), "segment_ids": places > 2}
    packed["sequence_ids"] = np.repeat([1, 2, 3], lengths)
    if counts:
        packed["position_ids"] = places
    packed = {name: np.pad(value, (0, padding))[None].astype("int32") for name, value in packed.items()}
    if padding:
        packed["input_mask"] = (packed["sequence_ids"] > 0).astype("int32")
    outputs = encoder(packed | {"sequence_starts": np.array([[0, 5, 7]], "int32")})
    for i, own in enumerate((slice(0, 5), slice(5, 7), slice(7, 13))):
        alone = encoder({name: packed[name][:, own] for name in ("input_ids", "segment_ids")})
        assert_allclose(outputs["pooled_output"][:, i], alone["pooled_output"], atol=1e-5)
        for name in {"sequence_output", "steps"} & outputs.keys():
            assert_allclose(outputs[name][:, own], alone[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "name, policy, walk",
    [
        ("shared", "float16", "loop"),
        pytest.param("everything", "mixed_bfloat16", "loop", marks=pytest.mark.slow),
        ("modern block", "mixed_float16", "recompute"),
    ],
)
def test_half_precision_is_near_and_trains_without_nan(name, policy, walk):
    exact, half = (AlbertEncoder(small(**CONFIGS[name]), walk=walk, dtype=one) for one in ("float32", policy))
    exact.set_weights([0.5 * weight for weight in weights_like(exact)])
    half.set_weights(exact.get_weights())
    found, expected = (encoder(FEATURES)["sequence_output"] for encoder in (half, exact))
    assert found.dtype == half.compute_dtype
    near = np.abs(numbers(found) - numbers(expected))
    assert near[FEATURES["input_mask"] > 0].mean() < 0.05
    config = small(hidden_dropout_prob=0.1, **CONFIGS[name])
    model = AlbertPretrainer(AlbertEncoder(config, dtype=policy, walk=walk, seed=2))
    model.compile(keras.optimizers.SGD(1e-2))
    model.train_on_batch(FEATURES)
    # A batch without a single token to attend to, too.
    model.train_on_batch(FEATURES | {"input_mask": np.zeros_like(FEATURES["input_mask"])})
    for weight in model.weights:
        assert np.isfinite(numbers(weight)).all(), weight.path


DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
SOLVED = EQUILIBRIA["implicit"] | {"equilibrium_max_steps": 2}
FILES = {
    "everything": lambda: alike(small(**EVERYTHING, **DROPOUT), walk="recompute", seed=4),
    "equilibrium": lambda: alike(small(**SOLVED, **DROPOUT)),
    "exits": lambda: AlbertTokenClassifier(small(**CONFIGS["random depth"], **DROPOUT), 4, early_exit=True),
    "xlnet": lambda: XlnetPretrainer(AlbertEncoder(small(**CONFIGS["memory"], **DROPOUT), pooler=False)),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_holds_a_model_and_where_its_randomness_stands(kind, tmp_path):
    model, features = FILES[kind](), inputs(kind)
    if kind == "exits":
        features = TOKENS
    model(features, training=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model) and loaded.get_config() == model.get_config()
    for training in (False, True):
        assert_alike(loaded(features, training=training), model(features, training=training), atol=0)


def test_dropout_follows_the_seed_and_moves_on():
    def states(encoder, training=True):
        return np.asarray(encoder(FEATURES, training=training)["sequence_output"])

    config = small(hidden_dropout_prob=0.5)
    one, two, other = (alike(config, seed=seed) for seed in (1, 1, 2))
    first = states(one)
    assert_array_equal(states(two), first)
    assert np.abs(states(one) - first).max() > 0.1 and np.abs(states(other) - first).max() > 0.1
    assert_array_equal(states(one, False), states(two, False))


def test_dropout_rates_and_independence_of_sites():
    seed = keras.random.SeedGenerator(5).next()
    masks = [np.asarray(dropout(np.ones((200, 200), "float32"), 0.3, site_seed(seed, site))) for site in range(3)]
    for mask in masks:
        # 40,000 draws: five standard deviations of the kept share are 0.0115.
        assert abs((mask > 0).mean() - 0.7) < 0.0115
        assert_allclose(mask[mask > 0], 1 / 0.7, rtol=1e-6)
    for one, two in [(0, 1), (1, 2), (0, 2)]:
        assert abs(((masks[one] > 0) & (masks[two] > 0)).mean() - 0.49) < 0.0125
    assert_array_equal(dropout(masks[0], 0.3, None), masks[0])


@pytest.mark.parametrize("walk", ["unrolled", "loop", "recompute"])
def test_every_place_of_every_step_draws_a_mask_of_its_own(walk, monkeypatch):
    """The embeddings' one, and three a step; of two calls none is drawn twice."""
    seeds, drop = set(), keras.random.dropout

    def noted(inputs, rate, seed=None):
        seeds.add(tuple(np.asarray(seed.next()).tolist()))
        return drop(inputs, rate, seed=seed)

    monkeypatch.setattr(keras.random, "dropout", noted)
    encoder = alike(small(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5), walk=walk, seed=1)
    for calls in (1, 2):
        encoder(FEATURES, training=True)
        assert len(seeds) == calls * (1 + 3 * 4)


PLANS = table("""
    {}                                                | 00 00 00 00             | 4
    {"sharing": "attention"}                          | 00 01 02 03             | 1 1 1 1
    {"sharing": "ffn"}                                | 00 10 20 30             | 1 1 1 1
    {"sharing": "none"}                               | 00 11 22 33             | 1 1 1 1
    {"num_hidden_layers": 6, "num_hidden_groups": 4}  | 00 00 11 22 22 33       | 2 1 2 1
    {"num_hidden_groups": 2, "inner_group_num": 2}    | 00 11 00 11 22 33 22 33 | 2 2
    {"depth_plan": "1x4"}                             | 00 00 00 00             | 4
    {"depth_plan": "1+1x3+1", "num_hidden_layers": 5} | 00 11 11 11 22          | 1 3 1
    {"depth_plan": "2+2x2+2", "num_hidden_layers": 8} | 00 11 22 33 22 33 44 55 | 1 2 1
    {"depth_plan": "1+2x3r", "num_hidden_layers": 7}  | 00 11 22 11 22 22 11    | 1 2 1
    {"depth_plan": "1+1x3", "sharing": "attention"}   | 00 11 12 13             | 1 1 1 1
    {"depth_plan": "2x2r", "sharing": "ffn"}          | 00 11 21 30             | 1 1
    {"attention_window": 3, "global_attention_every": 2, "num_hidden_layers": 5} | 00 00 00 00 00 | 2 1
    {"attention_window": 3, "num_hidden_layers": 5}   | 00 00 00 00 00          | 5
    {"attention_window": 3, "global_attention_every": 2, "inner_group_num": 2} | 00 11 00 11 00 11 00 11 | 4
""")


@pytest.mark.parametrize("changes, halves, repeats", PLANS)
def test_the_plan(changes, halves, repeats):
    """The numbers of each step's attention and feed-forward half, and how often each part of the plan is run."""
    config = small(**json.loads(changes))
    assert " ".join(f"{step.attention}{step.feed_forward}" for step in plan(config)) == halves
    assert " ".join(str(segment.repeats) for segment in segments(config)) == repeats


def test_positions_begin_behind_the_offset():
    encoder, ids = alike(small(**OFFSET)), np.arange(20).reshape(2, 10)
    expected = encoder(ids)["sequence_output"]
    # One type of segment: where the second text begins is for others to read.
    given = {"input_ids": ids, "position_ids": np.tile(np.arange(10), (2, 1)), "segment_ids": (ids > 4).astype(int)}
    assert_allclose(encoder(given)["sequence_output"], expected, atol=1e-6)
    # And padding before or behind changes no token.
    for before in range(3):
        padded = np.pad(ids[:, 2:6], [(0, 0), (before, 2 - before)], constant_values=1)
        outputs = encoder({"input_ids": padded, "input_mask": (padded != 1).astype(int)})["sequence_output"]
        alone = encoder(ids[:, 2:6])["sequence_output"]
        assert_allclose(outputs[:, before : before + 4], alone, atol=1e-5)


def test_rotary_positions_are_of_any_length():
    encoder = alike(small(position_type="rotary", max_position_embeddings=4))
    ids, places = RNG.integers(5, 40, (1, 70)).astype("int32"), np.arange(70, dtype="int32")[None]
    found = encoder({"input_ids": ids, "position_ids": places + 100})["sequence_output"]
    assert_allclose(found, encoder({"input_ids": ids})["sequence_output"], atol=1e-4)
    assert not [weight for weight in encoder.weights if "position" in weight.path]


@pytest.mark.parametrize("depth", [2, 24])
def test_what_is_added_to_a_pre_norm_stream_starts_smaller_the_deeper_it_is(depth):
    encoder = AlbertEncoder(small(hidden_size=64, num_hidden_layers=depth, intermediate_size=64, norm_position="pre"))
    for half in (encoder.halves_of("attention")[0], encoder.halves_of("feed_forward")[0]):
        # 0.88: of a normal distribution cut at two deviations.
        assert np.std(half.output_dense.kernel) == pytest.approx(0.02 * 0.88 / np.sqrt(2 * depth), rel=0.05)
