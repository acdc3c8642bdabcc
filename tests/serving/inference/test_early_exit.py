"""Rows that leave a batch get what each would get alone, at the step where the rule first holds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier, LearnedExit
from serving.inference import ExitRule, InferenceOptions, early_exit, make_encoder
from tests.serving.inference.encoders import eager_or_graph, make_batch, make_keras, needs_avx512, paddings
from tfrecords.base.errors import UserError

MODELS = {
    "classification": lambda encoder, **exits: AlbertClassifier(encoder, 3, **exits),
    "regression": AlbertRegressor,
    "tagging": lambda encoder, **exits: AlbertTokenClassifier(encoder, 3, **exits),
}
# Of six rows: some leave at once, some never, some when the rule first holds.
THRESHOLDS = {
    "classification": [0.0, 0.6, 2.0, 0.5, 0.7, 2.0],
    "regression": [9.0, 0.4, -1.0, 0.2, 0.6, -1.0],
    "tagging": [0.0, 0.4, 2.0, 0.45, 0.5, 2.0],
    "patience": [0, 1, 9, 2, 3, 9],
    "learned": [0.0, 0.3, 1.0, 0.5, 0.8, 0.6],
    "movement": [9.0, 0.5, 0.0, 0.6, 0.4, 0.8],
}


def make_model(kind, exits=True, **changes):
    keras.utils.set_random_seed(1)
    model = MODELS[kind](make_keras(**changes), early_exit=exits)
    for seed, head in enumerate(model.exit_heads):
        head.kernel.assign(keras.random.normal(head.kernel.shape, stddev=0.4, seed=seed))
    return model


def by_hand(model, rule, batch, thresholds):
    """Logits and steps of every row, from the Keras model's logits of every step, by the words of ExitRule."""
    ids, _, segments, mask = batch
    features = {"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments}
    every = np.stack([keras.ops.convert_to_numpy(logits) for logits in model.exit_logits(features)])
    chosen, steps = np.zeros(every.shape[1:], "float32"), []
    for row, threshold in enumerate(thresholds):
        real = mask[row] if rule.kind == "tagging" else [True]
        answers = np.reshape(every[:, row], (len(every), -1, every.shape[-1]))[:, real]
        step = next((i for i in range(len(every)) if decided(rule, answers, i, threshold)), len(every) - 1)
        steps.append(step + 1)
        if rule.kind == "tagging":
            chosen[row, real] = answers[step]
        else:
            chosen[row] = answers[step, 0]
    return chosen, steps


def decided(rule, answers, step, threshold):
    """answers: [steps, answers of the row, units]."""
    if rule.name == "confidence":
        if rule.kind == "regression":
            return step > 0 and np.abs(answers[step] - answers[step - 1]).max() <= threshold
        return tf.nn.softmax(answers[step]).numpy().max(-1).min() >= threshold
    if step < threshold:
        return False
    window = answers[step - int(threshold) : step + 1]
    if rule.kind == "regression":
        return np.abs(np.diff(window, axis=0)).max(initial=0) <= rule.tolerance
    return (window.argmax(-1) == window.argmax(-1)[0]).all()


def run(model, rule, batch, thresholds, options=None, graph=True):
    ids, lengths, segments, _ = batch
    encoder = make_encoder(model, options or InferenceOptions("float32", "skipped"))

    def exit_early(*inputs):
        return encoder.early_exit(*inputs[:3], model.exit_heads, inputs[3], rule)

    function = tf.function(exit_early, autograph=False) if graph else exit_early
    found = function(ids, lengths, segments, tf.constant(thresholds, tf.float32))
    return found["logits"].numpy(), found["steps"].numpy().tolist()


@eager_or_graph
@paddings
@pytest.mark.parametrize("name", ["confidence", "patience"])
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.few(2)
def test_equals_the_rule_by_hand(kind, name, padding, graph):
    rule = ExitRule(kind, name, tolerance=0.5)
    model, batch = make_model(kind, num_hidden_layers=6), make_batch((9, 1, 4, 12, 12, 2))
    thresholds = THRESHOLDS.get(name, THRESHOLDS[kind])
    expected, steps = by_hand(model, rule, batch, thresholds)
    assert len(set(steps)) > 1, "this test needs rows that leave at different steps"
    logits, found = run(model, rule, batch, thresholds, InferenceOptions("float32", padding), graph)
    assert found == steps
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@eager_or_graph
@paddings
@pytest.mark.parametrize("name", ["learned", "movement"])
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.few(2)
def test_rules_that_read_states_are_those_of_keras(kind, name, padding, graph):
    """Which have tests of their own, by hand."""
    model, batch = make_model(kind, LearnedExit(prior=0.3), num_hidden_layers=6), make_batch((9, 1, 4, 12, 12, 2))
    ids, _, segments, mask = batch
    features = {"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments}
    expected = model.answer_early(features, np.array(THRESHOLDS[name], "float32"), name)
    steps, chosen = (keras.ops.convert_to_numpy(expected[key]) for key in ("steps", "logits"))
    assert len(set(steps.tolist())) > 2, "this test needs rows that leave at different steps"
    options = InferenceOptions("float32", padding)
    logits, found = run(model, ExitRule(kind, name), batch, THRESHOLDS[name], options, graph)
    assert found == steps.tolist()
    np.testing.assert_allclose(logits, chosen * mask[..., None] if kind == "tagging" else chosen, atol=1e-5)


@pytest.mark.parametrize("padding", ["computed", "skipped"])
def test_without_heads_a_row_is_what_its_tokens_are_once_they_move_little(padding):
    encoder, batch = make_keras(num_hidden_layers=6), make_batch((9, 1, 4, 12, 12, 2))
    ids, lengths, segments, mask = batch
    features = {"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments}
    states = [keras.ops.convert_to_numpy(state) for state in encoder(features)["hidden_states"]]
    twin, thresholds = make_encoder(encoder, InferenceOptions("float32", padding)), [9.0, 0.5, 0.0, 0.6, 0.3, 0.9]
    found = twin.early_exit(ids, lengths, segments, [], tf.constant(thresholds), ExitRule("states", "movement"))
    steps = []
    for row, threshold in enumerate(thresholds):
        seen = [state[row][mask[row]] for state in states]
        moved = [np.linalg.norm(seen[i] - seen[i - 1]) / np.linalg.norm(seen[i]) for i in range(1, len(seen))]
        steps.append(next((i for i, ratio in enumerate(moved, 1) if ratio < threshold), 6))
        state = states[steps[-1]][row] * mask[row][:, None]
        np.testing.assert_allclose(found["sequence_output"][row], state, atol=1e-5)
        pooled = encoder.pooler(state[None, 0])[0]
        np.testing.assert_allclose(found["pooled_output"][row], pooled, atol=1e-5)
    assert found["steps"].numpy().tolist() == steps and len(set(steps)) > 2


@pytest.mark.parametrize("changes", [{"num_hidden_groups": 2}, {"inner_group_num": 2}, {"sharing": "none"}])
@pytest.mark.few(1)
def test_takes_every_plan(changes):
    model, batch, rule = make_model("classification", **changes), make_batch(), ExitRule()
    expected, steps = by_hand(model, rule, batch, [0.7] * 4)
    logits, found = run(model, rule, batch, [0.7] * 4)
    assert found == steps
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_each_row_has_its_own_threshold():
    model, batch = make_model("classification"), make_batch((12, 12, 12, 12))
    thresholds = [0.0, 2.0, 0.0, 2.0]
    logits, steps = run(model, ExitRule(), batch, thresholds)
    assert steps == [1, 4, 1, 4]
    expected, _ = by_hand(model, ExitRule(), batch, thresholds)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_without_exits_it_is_the_model():
    model, batch = make_model("classification"), make_batch()
    ids, _, segments, mask = batch
    logits, steps = run(model, ExitRule(), batch, [2.0] * 4)
    assert steps == [4] * 4
    expected = model({"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments})
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["confidence", "learned", "movement"])
@pytest.mark.parametrize("compute", [pytest.param("bfloat16", marks=needs_avx512), "int8"])
@pytest.mark.few(2)
def test_lower_precision_exits_too(compute, name):
    model, batch, rule = make_model("classification", LearnedExit()), make_batch(), ExitRule(name=name)
    expected, _ = by_hand(model, ExitRule(), batch, [2.0] * 4)
    logits, steps = run(model, rule, batch, [rule.never] * 4, InferenceOptions(compute, "skipped"))
    assert steps == [4] * 4
    np.testing.assert_allclose(logits, expected, atol=0.5)


def test_refusals():
    model = make_model("classification")
    with pytest.raises(UserError, match="4 heads"):
        make_encoder(model).early_exit(None, None, None, model.exit_heads[:2], None, ExitRule())
    with pytest.raises(UserError, match="'never'"):
        ExitRule(name="never")
    with pytest.raises(UserError, match="'spans'"):
        ExitRule("spans")
    with pytest.raises(UserError, match="by patience needs a model with exit heads"):
        ExitRule("states", "patience")
    with pytest.raises(UserError, match="--learned_exit"):
        make_encoder(model).early_exit(None, None, None, model.exit_heads, None, ExitRule(name="learned"))


@pytest.mark.parametrize("part", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["classification", "tagging"])
@pytest.mark.few(2)
def test_rows_that_ride_along_keep_their_answers(kind, part, monkeypatch):
    monkeypatch.setattr("serving.inference.early_exit.OPEN_PART", part)
    model, batch, rule = make_model(kind, num_hidden_layers=6), make_batch((9, 1, 4, 12, 12, 2)), ExitRule(kind)
    expected, steps = by_hand(model, rule, batch, THRESHOLDS[kind])
    logits, found = run(model, rule, batch, THRESHOLDS[kind])
    assert found == steps
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize(("leaving", "times"), [(0, 0), (1, 0), (3, 1), (6, 0)])
@pytest.mark.few(2)
def test_rows_leave_only_when_that_pays(leaving, times, monkeypatch):
    made = []
    make_tables = early_exit.make_tables
    monkeypatch.setattr(early_exit, "make_tables", lambda *rest: made.append(rest) or make_tables(*rest))
    model, (ids, lengths, _, _) = make_model("classification"), make_batch((9,) * 6)
    thresholds = tf.constant([0.0] * leaving + [2.0] * (6 - leaving))
    # Not compiled, so every table that is made calls the function.
    found = make_encoder(model).early_exit(ids, lengths, None, model.exit_heads, thresholds, ExitRule())
    assert found["steps"].numpy().tolist() == [1] * leaving + [4] * (6 - leaving)
    assert len(made) == times
