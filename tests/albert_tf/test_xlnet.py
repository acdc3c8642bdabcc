"""Relative attention, two streams and memory: against NumPy, and the properties that a permutation LM must have."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder, XlnetPretrainer
from albert_tf.checkpoints.depth import at_depth
from albert_tf.checkpoints.sharing import share_blocks
from albert_tf.checkpoints.variables import named_variables
from albert_tf.layers.relative import sinusoids
from albert_tf.layers.relative_attention import OWN_WEIGHTS
from albert_tf.models.text_student import vectors_of
from albert_tf.tasks.rows import FeatureRows, RaggedArray
from albert_tf.training.batches import predict
from tests.albert_tf import depth_cases, xlnet_reference
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
TOLERANCE = dict(atol=1e-5, rtol=0)
BATCH, LENGTH, PAST, TARGETS = 2, 6, 4, 3


def small(**changes) -> AlbertConfig:
    fields = dict(embedding_size=16, num_hidden_layers=3, position_type="relative", initializer_range=0.3)
    return depth_cases.small(**fields | changes)


def features_of(config: AlbertConfig, seed: int = 0, memory: bool = True, **changes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = {
        "input_ids": rng.integers(0, 40, (BATCH, LENGTH)).astype("int32"),
        "input_mask": np.array([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]], "int32"),
        "segment_ids": rng.integers(0, 3, (BATCH, LENGTH)).astype("int32"),
        "perm_mask": (rng.random((BATCH, LENGTH, LENGTH)) < 0.4).astype("float32"),
        "masked_lm_positions": np.array([[1, 4, 5], [0, 2, 3]], "int32"),
        "masked_lm_ids": rng.integers(0, 40, (BATCH, TARGETS)).astype("int32"),
        "masked_lm_weights": np.array([[1, 1, 1], [1, 1, 0]], "float32"),
    }
    if memory:
        shape = (config.num_steps, BATCH, PAST, config.hidden_size)
        features["memory"] = rng.normal(size=shape).astype("float32")
    return features | changes


def pretrainer(config: AlbertConfig, walk: str = "unrolled", seed: int = 1) -> XlnetPretrainer:
    """With weights that are all different from what they begin as, norms and biases too."""
    model = XlnetPretrainer(AlbertEncoder(config, walk=walk, pooler=False))
    rng = np.random.default_rng(seed)
    for name, variable in sorted(named_variables(model).items()):
        centre = 1.0 if name.endswith("gamma") else 0.0
        variable.assign(centre + rng.normal(scale=0.3, size=variable.shape))
    return model


def as_queries(features: dict) -> dict:
    renamed = features | {"query_positions": features["masked_lm_positions"]}
    return {name: value for name, value in renamed.items() if not name.startswith("masked_lm")}


@pytest.mark.parametrize(
    "changes",
    [
        {"sharing": "none", "memory_length": PAST},
        {"sharing": "none", "clamp_length": 3, "attention_type": "uni", "memory_length": 5, "reuse_length": 4},
        {"sharing": "all", "embedding_size": 8, "untie_biases": True, "memory_length": PAST + LENGTH},
        {"sharing": "ffn", "clamp_length": 2},
    ],
)
def test_both_streams_memory_and_loss_are_those_of_the_formulas(changes):
    config = small(**changes)
    model = pretrainer(config)
    is_reversed = {"is_reversed": np.array([0, 1])} if "clamp_length" in changes else {}
    features = features_of(config, **is_reversed)
    weights = {name: np.asarray(ops.convert_to_numpy(v), "float64") for name, v in named_variables(model).items()}
    steps = [(step.attention, step.feed_forward) for step in model.encoder.steps]
    content, queries = xlnet_reference.run(
        weights, as_queries(features), steps, 2, config.clamp_length, config.attention_type, config.untie_biases
    )
    outputs = model.encoder(as_queries(features))
    np.testing.assert_allclose(np.stack(outputs["hidden_states"]), content, **TOLERANCE)
    np.testing.assert_allclose(outputs["sequence_output"], content[-1], **TOLERANCE)
    np.testing.assert_allclose(outputs["query_output"], queries, **TOLERANCE)
    predictions = model(features)
    expected = xlnet_reference.loss(weights, queries, features["masked_lm_ids"], features["masked_lm_weights"])
    assert float(model.compute_loss(features, None, predictions)) == pytest.approx(expected, abs=1e-5)
    if not config.memory_length:
        assert "memory" not in outputs
        return
    recent = content[:-1, :, : config.reuse_length or None]
    memory = np.concatenate([features["memory"], recent], axis=2)[:, :, -config.memory_length :]
    np.testing.assert_allclose(outputs["memory"], memory, **TOLERANCE)
    np.testing.assert_allclose(predictions["memory"], memory, **TOLERANCE)


def test_one_graph_takes_rows_of_every_length(in_graphs):
    """As fine-tuning's, whose batches differ in length."""
    model = pretrainer(small(num_hidden_layers=1))
    long = features_of(model.encoder.config, memory=False, is_reversed=np.array([0, 1], "int32"))
    short = {name: value for name, value in long.items() if name != "perm_mask"}
    short |= {name: value[:, 2:] for name, value in long.items() if name in ("input_ids", "input_mask", "segment_ids")}
    short |= {"perm_mask": long["perm_mask"][:, 2:, 2:], "masked_lm_positions": long["masked_lm_positions"] // 2}

    def run(features):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(features, None, model(features))
        return loss, *map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))

    spec = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in long.items()}
    graph = tf.function(run, input_signature=[spec], autograph=False)
    for features in (long, short):
        for ours, expected in zip(graph(features), run(features), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_a_fixed_point_is_found_of_both_streams():
    config = small(equilibrium_solver="fixed_point", equilibrium_tolerance=0.0, equilibrium_max_steps=4)
    features = as_queries(features_of(config, memory=False))
    outputs = AlbertEncoder(config, pooler=False)(features)
    assert outputs["query_output"].shape == (BATCH, TARGETS, 16) and outputs["residual"].shape == (BATCH,)


def order_mask(order: list[int], length: int) -> np.ndarray:
    """What permutation LM masks: the targets `order`, in their order; all else is seen by all."""
    mask = np.zeros((1, length, length), "float32")
    for place, target in enumerate(order):
        for row in range(length):
            mask[0, row, target] = row not in order or order.index(row) <= place
    return mask


def queries_of(model, ids, mask, targets, **more) -> np.ndarray:
    features = {"input_ids": np.array([ids]), "perm_mask": mask, "query_positions": np.array([targets]), **more}
    return np.asarray(model.encoder(features)["query_output"])[0]


def test_a_target_sees_neither_itself_nor_what_comes_later_in_the_order():
    model, order = pretrainer(small()), [4, 1, 3]
    ids, mask = [5, 6, 7, 8, 9, 10], order_mask([4, 1, 3], 6)
    before = queries_of(model, ids, mask, order)
    for place, target in enumerate(order):
        changed = [30 if i == target else token for i, token in enumerate(ids)]
        moved = np.abs(queries_of(model, changed, mask, order) - before).max(axis=1)
        assert (moved[: place + 1] == 0).all(), "a target saw itself, or a later one"
        assert (moved[place + 1 :] > 1e-3).all(), "a later target did not see an earlier one's content"
    seen_by_all = queries_of(model, [30, *ids[1:]], mask, order)
    assert (np.abs(seen_by_all - before).max(axis=1) > 1e-3).all()


def test_positions_without_a_mask_hide_all_targets():
    config = small()
    model = pretrainer(config)
    features = features_of(config, memory=False)
    del features["perm_mask"]
    before = np.asarray(model(features)["masked_lm_logits"])
    ids = features["input_ids"].copy()
    ids[0, [1, 4, 5]] = 33
    after = np.asarray(model(features | {"input_ids": ids})["masked_lm_logits"])
    np.testing.assert_array_equal(after[0], before[0])
    ids[0, 2] = 34
    assert np.abs(np.asarray(model(features | {"input_ids": ids})["masked_lm_logits"])[0] - before[0]).max() > 1e-3


def test_target_mapping_says_what_positions_say_and_a_row_of_zeros_is_no_target():
    config = small()
    model = pretrainer(config)
    features = as_queries(features_of(config))
    places = features.pop("query_positions")
    mapping = np.eye(LENGTH, dtype="float32")[places]
    by_place = np.asarray(model.encoder(features | {"query_positions": places})["query_output"])
    np.testing.assert_array_equal(model.encoder(features | {"target_mapping": mapping})["query_output"], by_place)
    mapping[1, 2] = 0
    others = np.asarray(model.encoder(features | {"target_mapping": mapping})["query_output"])
    np.testing.assert_array_equal(others[0], by_place[0])
    assert np.isfinite(others).all() and np.abs(others[1, 2] - by_place[1, 2]).max() > 1e-3


def test_two_parts_with_memory_are_one_long_row_where_nobody_looks_ahead():
    config = small(attention_type="uni", memory_length=3)
    model = pretrainer(config).encoder
    ids = np.array([[3, 8, 1, 22, 9, 30]])
    whole = np.asarray(model({"input_ids": ids})["sequence_output"])
    first = model({"input_ids": ids[:, :3]})
    second = model({"input_ids": ids[:, 3:], "memory": first["memory"]})
    np.testing.assert_allclose(first["sequence_output"], whole[:, :3], **TOLERANCE)
    np.testing.assert_allclose(second["sequence_output"], whole[:, 3:], **TOLERANCE)
    assert np.abs(np.asarray(model({"input_ids": ids[:, 3:]})["sequence_output"]) - whole[:, 3:]).max() > 1e-3


def test_no_gradient_reaches_memory():
    config = small(memory_length=PAST)
    model = pretrainer(config)
    features = features_of(config)
    memory = tf.convert_to_tensor(features["memory"])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(memory)
        outputs = model(features | {"memory": memory}, training=True)
        loss, kept = model.compute_loss(features, None, outputs), tf.reduce_sum(outputs["memory"])
    assert tape.gradient(loss, memory) is None
    assert tape.gradient(kept, model.encoder.embeddings.word_embeddings.value) is None


def test_sinusoids_are_tf_models_golden_ones():
    """nlp/modeling/networks/xlnet_base_test.py of tf-models-official 2.20: positions 1 and 0, dimension 4."""
    golden = [[0.84147096, 0.00999983, 0.54030228, 0.99994999], [0, 0, 1, 1]]
    np.testing.assert_allclose(sinusoids(np.array([1.0, 0.0]), 4), golden, atol=1e-7)


def test_padding_before_a_row_changes_nothing_behind_it():
    model = pretrainer(small()).encoder
    ids = np.array([[9, 4, 31, 2]])
    alone = np.asarray(model({"input_ids": ids, "segment_ids": np.zeros_like(ids)})["sequence_output"])
    padded = np.pad(ids, ((0, 0), (3, 0)))
    features = {
        "input_ids": padded,
        "input_mask": np.minimum(padded, 1),
        "segment_ids": np.where(padded == 0, 3, 0),
    }
    np.testing.assert_allclose(np.asarray(model(features)["sequence_output"])[:, 3:], alone, **TOLERANCE)


def test_published_sizes():
    """116,718,336 and 360,268,800 without the bias of the LM; one block with small embeddings: 11,873,664."""
    from albert_tf.analysis.cost import parameters

    sizes = {name: parameters(AlbertConfig.named(name)).encoder for name in ("xlnet_base", "xlnet_large")}
    assert sizes == {"xlnet_base": 116_718_336, "xlnet_large": 360_268_800}
    shared = AlbertConfig.named("albert_xlnet_base")
    for config, expected in ((shared.replace(untie_biases=True), 11_873_664 + 42_240),):
        encoder = AlbertEncoder(config, pooler=False)
        assert encoder.count_params() == expected
        assert parameters(config).encoder == expected


def test_features_that_do_not_fit_are_named():
    encoder = AlbertEncoder(small(), pooler=False)
    ids = np.array([[1, 2]])
    with pytest.raises(UserError, match="leave out sequence_ids"):
        encoder({"input_ids": ids, "sequence_ids": ids})
    with pytest.raises(UserError, match="say the same"):
        encoder({"input_ids": ids, "query_positions": ids, "target_mapping": np.ones((1, 2, 2))})
    plain = AlbertEncoder(small(position_type="absolute"), pooler=False)
    with pytest.raises(UserError, match="perm_mask is for an encoder with position_type 'relative'"):
        plain({"input_ids": ids, "perm_mask": np.zeros((1, 2, 2))})
    with pytest.raises(UserError, match="needs position_type 'relative', not 'absolute'"):
        XlnetPretrainer(plain)


def test_a_file_holds_the_model(tmp_path):
    model = pretrainer(small(memory_length=2, untie_biases=True))
    model.compile()
    features = features_of(model.encoder.config, memory=False)
    model.fit(tf.data.Dataset.from_tensors(features), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(features)["masked_lm_logits"], model(features)["masked_lm_logits"])
    assert isinstance(again, XlnetPretrainer) and again.encoder.config == model.encoder.config


def test_masked_words_are_predicted_from_the_content_stream():
    """AlbertPretrainer on the same encoder: the other objective of a comparison."""
    config = small()
    features = features_of(config, memory=False)
    del features["perm_mask"]
    model = AlbertPretrainer(config, pair_task=None)
    before = np.asarray(model(features)["masked_lm_logits"])
    ids = features["input_ids"].copy()
    ids[0, 1] = 33
    assert (
        np.abs(np.asarray(model(features | {"input_ids": ids})["masked_lm_logits"])[0, 0] - before[0, 0]).max() > 1e-3
    )


@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16"])
def test_half_precision_masks_as_well(dtype):
    config = small()
    model = XlnetPretrainer(AlbertEncoder(config, pooler=False, dtype=dtype))
    exact = XlnetPretrainer(AlbertEncoder(config, pooler=False))
    exact.set_weights(model.get_weights())
    features = features_of(config)
    halves, floats = (np.asarray(one(features)["masked_lm_logits"], "float32") for one in (model, exact))
    assert np.isfinite(halves).all()
    assert np.abs(halves - floats).max() < 0.1 * np.abs(floats).max()


def test_the_vector_that_is_distilled_is_the_embedders():
    model, ids = (
        AlbertSentenceEmbedder(small(num_hidden_layers=1), pooling="cls"),
        np.array([[5, 6, 4, 3], [7, 4, 3, 0]]),
    )
    features = {"input_ids": ids, "input_mask": np.minimum(ids, 1)}
    hidden = model.encoder(features)["sequence_output"]
    np.testing.assert_allclose(vectors_of(model, hidden, features), model(features), **TOLERANCE)


def test_biases_of_steps_stay_with_them_at_another_depth_and_in_another_plan():
    encoder = AlbertEncoder(small(num_hidden_layers=4, untie_biases=True))
    features = features_of(encoder.config, memory=False)
    shallow = at_depth(encoder, 2)
    for name in OWN_WEIGHTS:
        np.testing.assert_array_equal(getattr(shallow.attentions[0], name), getattr(encoder.attentions[0], name)[:2])
    states, whole = (one(features)["hidden_states"] for one in (shallow, encoder))
    np.testing.assert_allclose(states[2], whole[2], **TOLERANCE)
    np.testing.assert_allclose(at_depth(encoder, 1)(features)["hidden_states"][1], whole[1], **TOLERANCE)
    with pytest.raises(UserError, match=r"depth 5 cannot be run: .*weights of their own"):
        at_depth(encoder, 5)
    halves = share_blocks(encoder, encoder.config.replace(depth_plan="1x2+1x2"))
    np.testing.assert_allclose(halves(features)["sequence_output"], whole[4], **TOLERANCE)


def test_rows_are_predicted_whose_batch_leaves_a_memory():
    model = pretrainer(small(memory_length=2))
    ids = [np.array([5, 6, 4, 3], "int32")] * 5
    one = RaggedArray(np.concatenate(ids), np.arange(0, 21, 4))
    tokens = {"input_ids": one, "input_mask": RaggedArray(np.ones(20, "int32"), one.splits)}
    rows = FeatureRows(tokens | {"segment_ids": RaggedArray(np.zeros(20, "int32"), one.splits)}, {}, 0)
    found = predict(model, rows, 5, 8)
    assert len(found) == 5 and set(found[4]) == {"masked_lm_logits"}
