"""Rows that leave a batch get what each would get alone, at the step where the rule first holds."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.exit_rules import leave, movements
from serving.inference import ExitRule, InferenceOptions, make_encoder, rows
from tests.refusals import refused
from tests.serving.inference.encoders import features, make_batch, make_keras, needs_avx512

MODELS = {
    "classification": lambda encoder, **exits: AlbertClassifier(encoder, 3, **exits),
    "regression": AlbertRegressor,
    "tagging": lambda encoder, **exits: AlbertTokenClassifier(encoder, 3, **exits),
}
# Of six rows: some leave at once, some never, some when the rule first holds.
THRESHOLDS = yaml.safe_load("""
classification: [0.0, 0.6, 2.0, 0.5, 0.7, 2.0]
regression: [9.0, 0.4, -1.0, 0.2, 0.6, -1.0]
tagging: [0.0, 0.4, 2.0, 0.45, 0.5, 2.0]
patience: [0, 1, 9, 2, 3, 9]
movement: [9.0, 0.5, 0.0, 0.6, 0.4, 0.8]
""")
LENGTHS = (9, 1, 4, 12, 12, 2)


def make_model(kind, **changes):
    encoder = make_keras(**{"num_hidden_layers": 5} | changes)
    if kind == "states":
        encoder.exit_heads = []
        return encoder
    keras.utils.set_random_seed(1)
    model = MODELS[kind](encoder, early_exit=True)
    for seed, head in enumerate(model.exit_heads):
        head.kernel.assign(keras.random.normal(head.kernel.shape, stddev=0.4, seed=seed))
    return model


def thresholds_of(rule):
    return THRESHOLDS.get(rule.name) or THRESHOLDS[rule.kind]


def run(model, rule, batch, thresholds, options=None):
    """By the mask: a server asks by lengths (model_server/test_exports.py)."""
    ids, _, segments, mask = batch
    given = model.exit_heads, tf.constant(thresholds, tf.float32), rule, mask.astype("int32")
    return make_encoder(model, options).early_exit(ids, None, segments, *given)


def require_keras_answers(model, rule, batch, found):
    """Fails where answers and steps are not what the Keras model says, whose rules have tests of their own."""
    thresholds = np.array(thresholds_of(rule), "float32")
    if rule.kind == "states":
        states, mask = model(features(batch))["hidden_states"], batch[3]
        expected = leave(rule, states[1:], movements(rule, states, mask), mask, thresholds)
        answers, pooled = found["sequence_output"], model.pooler(expected["logits"][:, 0])
        assert_allclose(found["pooled_output"], pooled, atol=1e-5)
    else:
        expected, answers = model.answer_early(features(batch), thresholds, rule.name, rule.tolerance), found["logits"]
    steps = np.asarray(expected["steps"]).tolist()
    assert len(set(steps)) > 1, "this test needs rows that leave at different steps"
    assert found["steps"].numpy().tolist() == steps
    of_tokens = batch[3][..., None] if rule.by_token else 1
    assert_allclose(answers, np.asarray(expected["logits"]) * of_tokens, atol=1e-5)


LEAVING = yaml.safe_load("""
- [classification, confidence, {num_hidden_groups: 2}]
- [classification, patience, {sharing: none}]
- [classification, movement, &modern
   {norm_position: pre, norm: rms_norm, feed_forward: glu, position_type: rotary, use_bias: false}]
- [regression, confidence, {inner_group_num: 2, num_hidden_layers: 3}]
- [regression, patience, {depth_lora_rank: 2}]
- [regression, movement, *modern]
- [tagging, patience, {step_signal: learned, norm_position: pre}]
- [tagging, confidence, {}]
- [tagging, movement, {attention_window: 3}]
- [states, movement, {}]
""")


@pytest.mark.parametrize("kind, name, changes", LEAVING)
def test_rows_leave_with_the_answers_of_the_step_where_their_rule_holds(kind, name, changes, monkeypatch):
    """Each by its own threshold, whether decided rows are computed on as long as can be, or are taken out at once."""
    rule, model, batch = ExitRule(kind, name, tolerance=0.5), make_model(kind, **changes), make_batch(LENGTHS)
    # Across a hole in the mask a window of Keras counts places, and one of an export that skips padding tokens.
    batch[3][3, 5:8] = "attention_window" in changes
    for part in (0.0, 1.0):
        monkeypatch.setattr("serving.inference.early_exit.OPEN_PART", part)
        found = run(model, rule, batch, thresholds_of(rule))
        require_keras_answers(model, rule, batch, found)


@pytest.mark.parametrize(
    "compute, name", [pytest.param("bfloat16", "confidence", marks=needs_avx512), ("int8", "movement")]
)
def test_fewer_bits_exit_too(compute, name, products_anywhere):
    model, batch, rule = make_model("classification", num_hidden_layers=4), make_batch(), ExitRule(name=name)
    found = run(model, rule, batch, [rule.never] * 4, InferenceOptions(compute))
    assert found["steps"].numpy().tolist() == [4] * 4
    assert_allclose(found["logits"], model(features(batch)), atol=0.5)


def test_rows_leave_only_when_that_pays(monkeypatch):
    made, make_tables = [], rows.make_tables
    monkeypatch.setattr(rows, "make_tables", lambda *rest: made.append(rest) or make_tables(*rest))
    model, batch = make_model("classification", num_hidden_layers=4), make_batch((9,) * 6)
    # Without a graph, so every table that is made calls the function.
    for leaving, times in ((0, 0), (1, 0), (3, 1), (6, 0)):
        made.clear()
        found = run(model, ExitRule(), batch, [0.0] * leaving + [2.0] * (6 - leaving))
        assert found["steps"].numpy().tolist() == [1] * leaving + [4] * (6 - leaving)
        # And those of the whole batch.
        assert len(made) == 1 + times


REFUSED = yaml.safe_load(r"""
- [{}, 3, {}, "early exit needs 2 heads, one a step; there are 3"]
- [{}, 2, {name: never}, "'never'"]
- [{}, 0, {kind: states, name: patience}, by patience needs a model with exit heads]
- [{halting: act}, 2, {}, "early exit and halting 'act' exclude each other"]
- [{position_type: relative}, 2, {}, "first token, and .CLS. is the last"]
- [{equilibrium_solver: anderson}, 2, {}, "exits are between steps, and the blocks stop by themselves"]
""")


@pytest.mark.parametrize("changes, heads, rule, message", REFUSED)
def test_what_cannot_exit_early_is_refused(changes, heads, rule, message):
    ids, lengths, _, _ = make_batch()
    with refused(message):
        make_encoder(make_keras(**changes)).early_exit(
            ids, lengths, None, [None] * heads, np.zeros(4, "float32"), ExitRule(**rule)
        )
