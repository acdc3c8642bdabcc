"""The encoder: answers on request, padding, packing, half precision, dropout, files, and the plan of its steps."""

import keras
import numpy as np
import pytest

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.layers.depth import Segment, Step, plan, segments
from tests.albert_tf.depth_cases import CONFIGS, FEATURES, LENGTH, MODERN, alike, inputs, small, weights_like
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
RNG = np.random.default_rng(3)


def test_hidden_states_and_attentions_on_request():
    config = small(inner_group_num=2, num_hidden_layers=3)
    outputs = alike(config)(FEATURES, output_attentions=True)
    assert len(outputs["hidden_states"]) == 7 and len(outputs["attentions"]) == 6
    for probabilities in outputs["attentions"]:
        assert probabilities.shape == (3, 2, LENGTH, LENGTH)
        np.testing.assert_allclose(np.sum(probabilities, axis=-1), 1, atol=1e-5)
        assert np.max(np.asarray(probabilities)[2, :, :, 5:]) == 0
    np.testing.assert_array_equal(outputs["hidden_states"][-1], outputs["sequence_output"])
    loop = alike(config, walk="loop")
    assert "hidden_states" not in loop(FEATURES)
    asked = loop(FEATURES, output_hidden_states=True, output_attentions=True)
    np.testing.assert_allclose(asked["attentions"][-1], outputs["attentions"][-1], atol=1e-6)
    assert "hidden_states" not in alike(config)(FEATURES, output_hidden_states=False)


def test_defaults_are_one_sequence_without_padding():
    ids = FEATURES["input_ids"]
    full = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    encoder = alike(small())
    for features in ({"input_ids": ids}, ids):
        np.testing.assert_allclose(encoder(features)["pooled_output"], encoder(full)["pooled_output"], atol=1e-6)


@pytest.mark.parametrize("walk", ["unrolled", "loop"])
def test_padding_changes_nothing(walk):
    encoder = alike(small(), walk=walk)
    whole = encoder(FEATURES)
    row = {name: FEATURES[name][2:, :5] for name in ("input_ids", "input_mask", "segment_ids")}
    np.testing.assert_allclose(whole["sequence_output"][2:, :5], encoder(row)["sequence_output"], atol=1e-5)
    np.testing.assert_allclose(whole["pooled_output"][2:], encoder(row)["pooled_output"], atol=1e-5)


OFFSET = {"position_offset": 2, "max_position_embeddings": 12, "type_vocab_size": 1}
OPEN = {"step_signal": "learned", "hyper_connections": 4, "depth_lora_rank": 2}


@pytest.mark.parametrize(
    ("changes", "walk", "padding", "counts"),
    [
        ({"max_position_embeddings": 12}, "unrolled", 0, False),
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
    parts = [RNG.integers(5, 40, (1, length)).astype("int32") for length in lengths]
    types = [(np.arange(length)[None] > 2).astype("int32") for length in lengths]
    starts = np.cumsum([0] + lengths[:-1])
    pad = np.zeros((1, padding), "int32")
    packed = {
        "input_ids": np.concatenate([*parts, pad], axis=1),
        "segment_ids": np.concatenate([*types, pad], axis=1),
        "sequence_ids": np.concatenate([np.repeat([[1, 2, 3]], lengths, axis=1).astype("int32"), pad], axis=1),
        "sequence_starts": starts[None].astype("int32"),
    }
    if padding:
        packed["input_mask"] = (packed["sequence_ids"] > 0).astype("int32")
    if counts:
        places = [np.arange(length) for length in (*lengths, padding)]
        packed["position_ids"] = np.concatenate(places)[None].astype("int32")
    outputs = encoder(packed)
    for i, (ids, type_ids, start) in enumerate(zip(parts, types, starts)):
        alone = encoder({"input_ids": ids, "segment_ids": type_ids})
        inside = {name: outputs[name][:, start : start + ids.shape[1]] for name in ("sequence_output", "steps")
                  if name in outputs} | {"pooled_output": outputs["pooled_output"][:, i]}  # fmt: skip
        for name, found in inside.items():
            np.testing.assert_allclose(found, alone[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("name", "policy", "walk"),
    [
        ("shared", "float16", "loop"),
        ("shared", "mixed_float16", "unrolled"),
        ("everything", "mixed_bfloat16", "loop"),
        ("modern block", "mixed_float16", "recompute"),
    ],
)
def test_half_precision_is_near_and_trains_without_nan(name, policy, walk):
    exact, half = (AlbertEncoder(small(**CONFIGS[name]), walk=walk, dtype=one) for one in ("float32", policy))
    exact.set_weights([0.5 * weight for weight in weights_like(exact)])
    half.set_weights(exact.get_weights())
    found, expected = (encoder(FEATURES)["sequence_output"] for encoder in (half, exact))
    assert found.dtype == half.compute_dtype
    near = np.abs(np.asarray(keras.ops.cast(found, "float32")) - np.asarray(expected))
    assert near[FEATURES["input_mask"] > 0].mean() < 0.05
    config = small(hidden_dropout_prob=0.1, **CONFIGS[name])
    model = AlbertPretrainer(AlbertEncoder(config, dtype=policy, walk=walk, seed=2))
    model.compile(keras.optimizers.SGD(1e-2))
    model.train_on_batch(FEATURES)
    # A batch without a single token to attend to, too.
    model.train_on_batch(FEATURES | {"input_mask": np.zeros_like(FEATURES["input_mask"])})
    for weight in model.weights:
        assert np.isfinite(np.asarray(keras.ops.cast(weight, "float32"))).all(), weight.path


@pytest.mark.parametrize("name", ["everything", "modern block", "memory"])
def test_a_file_holds_the_encoder(name, tmp_path):
    encoder = alike(small(**CONFIGS[name]), walk="recompute", seed=4)
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    assert loaded.config == encoder.config and loaded.walk == "recompute" and loaded.seed == 4
    assert AlbertConfig.from_dict(encoder.config.to_dict()) == encoder.config
    for path, value in encoder(inputs(name)).items():
        for one, other in zip(keras.tree.flatten(value), keras.tree.flatten(loaded(inputs(name))[path]), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "float16"])
def test_constant_rows_are_normalised_to_the_shift(policy):
    # Their variance is 0, and an epsilon of 1e-12 is 0 in float16.
    encoder = AlbertEncoder(small(), dtype=policy)
    for table in ("word_embeddings", "token_type_embeddings", "position_embeddings"):
        variable = getattr(encoder.embeddings, table)
        variable.assign(np.full(variable.shape, 3.0))
    assert (np.asarray(encoder(FEATURES)["embedding_output"]) == 0).all()


def test_dropout_follows_the_seed_and_moves_on():
    config = small(hidden_dropout_prob=0.5)
    one, two = alike(config, seed=1), alike(config, seed=1)
    first = np.asarray(one(FEATURES, training=True)["sequence_output"])
    np.testing.assert_array_equal(two(FEATURES, training=True)["sequence_output"], first)
    assert np.abs(np.asarray(one(FEATURES, training=True)["sequence_output"]) - first).max() > 0.1
    assert np.abs(np.asarray(alike(config, seed=2)(FEATURES, training=True)["sequence_output"]) - first).max() > 0.1
    np.testing.assert_array_equal(one(FEATURES)["sequence_output"], two(FEATURES)["sequence_output"])


def test_dropout_rates_and_independence_of_sites():
    from albert_tf.layers.dropout import dropout, site_seed

    seed = keras.random.SeedGenerator(5).next()
    masks = [np.asarray(dropout(np.ones((200, 200), "float32"), 0.3, site_seed(seed, site))) for site in range(3)]
    for mask in masks:
        # 40,000 draws: five standard deviations of the kept share are 0.0115.
        assert abs((mask > 0).mean() - 0.7) < 0.0115
        np.testing.assert_allclose(mask[mask > 0], 1 / 0.7, rtol=1e-6)
    for one, two in [(0, 1), (1, 2), (0, 2)]:
        assert abs(((masks[one] > 0) & (masks[two] > 0)).mean() - 0.49) < 0.0125
    np.testing.assert_array_equal(dropout(masks[0], 0.3, None), masks[0])


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


def test_the_plan():
    assert plan(small(num_hidden_layers=3)) == [Step(0, 0)] * 3
    assert plan(small(num_hidden_layers=3, sharing="attention")) == [Step(0, 0), Step(0, 1), Step(0, 2)]
    assert plan(small(num_hidden_layers=3, sharing="ffn")) == [Step(0, 0), Step(1, 0), Step(2, 0)]
    uneven = plan(small(num_hidden_layers=5, num_hidden_groups=2, inner_group_num=2))
    assert [step.attention for step in uneven] == [0, 1] * 3 + [2, 3] * 2
    deep = plan(small(num_hidden_layers=22, num_hidden_groups=22))
    assert [step.feed_forward for step in deep] == list(range(22))
    assert segments(small()) == [Segment((Step(0, 0),), 4)]
    assert [s.repeats for s in segments(small(num_hidden_layers=6, num_hidden_groups=4))] == [2, 1, 2, 1]


def halves(text, layers, **changes):
    return [
        (step.attention, step.feed_forward)
        for step in plan(small(num_hidden_layers=layers, depth_plan=text, **changes))
    ]


def test_the_plan_as_text():
    assert halves("1+1x3+1", 5) == [(0, 0)] + [(1, 1)] * 3 + [(2, 2)]
    assert halves("2+2x2+2", 8) == [(i, i) for i in (0, 1, 2, 3, 2, 3, 4, 5)]
    assert halves("3x4r", 12) == [(i, i) for i in (0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 1, 0)]
    assert halves("1+1x3", 4, sharing="attention") == [(0, 0), (1, 1), (1, 2), (1, 3)]
    assert halves("2x2r", 4, sharing="ffn") == [(0, 0), (1, 1), (2, 1), (3, 0)]
    assert [s.repeats for s in segments(small(num_hidden_layers=9, depth_plan="1+2x3r+2"))] == [1, 2, 1, 1]
    assert plan(small(depth_plan="1x4")) == plan(small())


def offset_encoder(**changes):
    config = AlbertConfig(
        vocab_size=30, embedding_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, sharing="none",
        intermediate_size=32, max_position_embeddings=12, type_vocab_size=1, initializer_range=0.5, position_offset=2,
    )  # fmt: skip
    return AlbertEncoder(config.replace(**changes))


def test_positions_begin_behind_the_offset():
    encoder, plain = offset_encoder(), offset_encoder(position_offset=0, max_position_embeddings=10)
    tables = encoder.get_weights()
    index = next(i for i, table in enumerate(tables) if table.shape == (12, 16))
    plain.set_weights([table[2:] if i == index else table for i, table in enumerate(tables)])
    ids = np.arange(20).reshape(2, 10)
    expected = np.asarray(plain(ids)["sequence_output"])
    for features in (
        {"input_ids": ids},
        {"input_ids": ids, "input_mask": np.ones_like(ids)},
        {"input_ids": ids, "position_ids": np.tile(np.arange(10), (2, 1))},
        # One type of segment: where the second text begins is for others to read.
        {"input_ids": ids, "segment_ids": (ids > 4).astype(int)},
    ):
        np.testing.assert_allclose(np.asarray(encoder(features)["sequence_output"]), expected, atol=1e-6)
    with pytest.raises(UserError, match="a sequence of 11 tokens is over max_position_embeddings 12 - 2"):
        encoder(np.zeros((1, 11), int))


def test_padding_before_or_behind_changes_no_token():
    encoder, ids = offset_encoder(), np.array([[0, 7, 9, 2]])
    expected = np.asarray(encoder(ids)["sequence_output"])
    for before in range(3):
        padded = np.pad(ids, [(0, 0), (before, 2 - before)], constant_values=1)
        outputs = encoder({"input_ids": padded, "input_mask": (padded != 1).astype(int)})["sequence_output"]
        np.testing.assert_allclose(np.asarray(outputs)[:, before : before + 4], expected, atol=1e-5)
