"""Exits by formulas of their own in NumPy: what is trained, and when rows leave by each rule."""

import itertools

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, LearnedExit
from albert_tf.models.exit_rules import ExitRule, movement
from tests.albert_tf.exits import CONFIG, FEATURES, KINDS, LEARNED, MASK, TARGETS, make
from tests.albert_tf.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def model(kind):
    """Of a kind; no test changes its weights."""
    return make(kind)


@pytest.fixture(scope="module")
def every(model):
    """The answers of every step."""
    return model.exit_logits(FEATURES)


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor).astype("float64")


def leaving(model):
    """p [steps, batch], by the paper's words."""
    states = [numpy(state)[:, 0] for state in model.encoder(FEATURES)["hidden_states"]]
    inner, score = (
        ([numpy(weight) for weight in layer.weights]) for layer in (model.exit_gate.inner, model.exit_gate.score)
    )
    p, still = [], np.ones(6)
    for before, now in itertools.pairwise(states[:-1]):
        hidden = np.tanh(np.concatenate([now, before], axis=1) @ inner[0] + inner[1])
        gate = 1 / (1 + np.exp(-(hidden @ score[0] + score[1])[:, 0]))
        p.append(still * gate)
        still = still * (1 - gate)
    return np.array([*p, still])


def answer_losses(kind, logits):
    """Of each answer, [batch] or [batch, sequence]."""
    if kind == "regressor":
        return (logits[:, 0] - TARGETS[kind]) ** 2
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, TARGETS[kind][..., None], axis=-1)[..., 0]


def expected_loss(kind, model, every, weights):
    p = leaving(model) if model.exit_gate else np.arange(1, 5)[:, None] / 10 * np.ones(6)
    total = 0
    for share, logits in zip(p, every, strict=True):
        losses = answer_losses(kind, numpy(logits)) * weights
        total += (losses.T * share).sum() / (weights.sum() if kind == "token classifier" else 6)
    prior = np.array([0.2, 0.2 * 0.8, 0.2 * 0.8**2, 0.8**3])
    if not model.exit_gate:
        return total
    of_rows = weights.reshape(6, -1).mean(axis=1)
    divergence = np.sum(p * np.log(p.T / prior).T, axis=0) * of_rows
    return total + 0.7 * (divergence.sum() / of_rows.sum() if kind == "token classifier" else divergence.mean())


@pytest.mark.parametrize("exits", [True, LEARNED])
def test_the_loss_is_the_papers_and_evaluation_says_the_last_steps(kind, exits):
    """PABEE's, which weighs steps by their number, and PALBERT's; metrics are the last step's too."""
    model, is_number = make(kind, exits), kind == "regressor"
    model.compile(keras.optimizers.SGD(0.0), metrics=["mse" if is_number else "accuracy"])
    if exits is LEARNED:
        assert_allclose(numpy(model.exit_probabilities(FEATURES)).T, leaving(model), atol=1e-6)
    every, targets = model.exit_logits(FEATURES), TARGETS[kind]
    ones = np.ones(targets.shape, "float32")
    weights = MASK.astype("float32") if ones.ndim == 2 else np.array([1, 0, 2, 1, 0.5, 3], "float32")
    for given in (None, weights):
        model.reset_metrics()
        found = model.train_on_batch(FEATURES, targets, given, return_dict=True)
        expected = expected_loss(kind, model, every, ones if given is None else given)
        assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)
        if given is None:
            last = numpy(every[-1])
            figure = np.mean((last[:, 0] - targets) ** 2) if is_number else np.mean(last.argmax(-1) == targets)
            assert float(found["mse" if is_number else "accuracy"]) == pytest.approx(figure, rel=1e-5)
    found = model.evaluate(FEATURES, targets, verbose=0)[0]
    assert found == pytest.approx(float(np.mean(answer_losses(kind, last))), rel=1e-5)


def test_a_new_gate_is_the_prior():
    model = AlbertClassifier(CONFIG.replace(initializer_range=1e-4), 4, early_exit=LearnedExit(0.3))
    assert_allclose(model.exit_probabilities(FEATURES)[0], [0.3, 0.21, 0.147, 0.343], atol=1e-4)


def test_fit_teaches_the_gate():
    """With all the weight on the prior, rows learn to leave as early as it says."""
    model = make("classifier", LearnedExit(prior=0.9, beta=100.0))
    model.compile(keras.optimizers.Adam(0.15))
    for _ in range(5):
        model.train_on_batch(FEATURES, TARGETS["classifier"])
    assert_allclose(np.mean(model.exit_probabilities(FEATURES), axis=0)[0], 0.9, atol=0.05)


def by_hand(kind, model, every, rule, thresholds):
    """Steps of every row, from every step's answers and states."""
    every = np.array([numpy(logits).reshape(6, -1, logits.shape[-1]) for logits in every])
    states = np.array([numpy(state) for state in model.encoder(FEATURES)["hidden_states"]])
    shares, steps = leaving(model), []
    for row, threshold in enumerate(thresholds):
        real = MASK[row] > 0 if kind == "token classifier" else slice(0, 1)
        answers, seen = every[:, row, real], states[:, row, real]
        sizes = [np.linalg.norm(part, axis=(1, 2)) for part in (np.diff(seen, axis=0), seen[1:])]
        if kind == "regressor":
            changes = np.abs(np.diff(answers, axis=0)).max(axis=(1, 2))
            same, confident = changes <= 0.1, [False, *(changes <= threshold)]
        else:
            best, odds = answers.argmax(-1), np.exp(answers - answers.max(-1, keepdims=True))
            same = (best[1:] == best[:-1]).all(axis=1)
            confident = (odds.max(-1) / odds.sum(-1)).min(axis=1) >= threshold
        patience = itertools.accumulate([0, *same], lambda count, is_same: (count + 1) * is_same)
        leaves = {
            "confidence": confident, "patience": [count >= threshold for count in patience],
            "learned": shares[:, row].cumsum() > threshold, "movement": sizes[0] / sizes[1] < threshold,
        }[rule]  # fmt: skip
        steps.append(1 + int(np.argmax([*leaves[:-1], True])))
    return steps


@pytest.mark.parametrize("rule", ["confidence", "patience", "learned", "movement"])
def test_rows_leave_by_every_rule(kind, model, every, rule):
    confidence = [0.0, 0.4, 0.8, 0.2, 2.0, 0.6] if kind == "regressor" else [0.0, 0.5, 0.7, 0.8, 2.0, 0.9]
    thresholds = {
        "confidence": confidence, "patience": [0, 1, 2, 9, 1, 2], "learned": [0.0, 0.3, 0.9, 1.0, 0.5, 0.6],
        "movement": [0.0, 0.5, 0.6, 9.0, 0.7, 0.4],
    }[rule]  # fmt: skip
    found = model.answer_early(FEATURES, thresholds, rule)
    expected = by_hand(kind, model, every, rule, thresholds)
    assert len(set(expected)) > 1, "this test needs rows that leave at different steps"
    assert numpy(found["steps"]).tolist() == expected
    for row, step in enumerate(expected):
        assert_array_equal(found["logits"][row], every[step - 1][row])


def test_patience_begins_again_when_an_answer_changes():
    rule = ExitRule("classification", "patience")
    now, before = np.array([[2.0, 1.0], [2.0, 1.0]], "float32"), np.array([[1.0, 0.0], [0.0, 1.0]], "float32")
    decided, unchanged = rule.decide(now, before, np.array([1.0, 1.0], "float32"), np.array([2.0, 2.0], "float32"))
    assert numpy(unchanged).tolist() == [2, 0] and np.asarray(decided).tolist() == [True, False]


def test_movement_is_that_of_tokens_relative_to_the_new_state():
    now, before = np.array([[[3.0, 4.0], [9.0, 9.0]]]), np.array([[[3.0, 1.0], [0.0, 0.0]]])
    assert float(movement(now, before, np.array([[True, False]]))[0]) == pytest.approx(3 / 5)


def test_padding_keeps_no_row_from_leaving():
    """Thresholds between what real tokens and what padding is sure of."""
    model = make("token classifier", True)
    sure = numpy(keras.ops.max(keras.ops.softmax(model.exit_logits(FEATURES)[0]), axis=-1))
    real, padding = (np.where(of == MASK, sure, 1).min(axis=1) for of in (1, 0))
    rows = real > padding
    assert rows.any()
    steps = model.answer_early(FEATURES, (real + np.where(rows, padding, real)) / 2)["steps"]
    assert (np.asarray(steps)[rows] == 1).all()


def test_by_movement_any_model_leaves():
    """What it answers at a step is what its only head says there."""
    model = make("classifier", False)
    moves = model.answer_early(FEATURES, [0.0] * 5 + [9.0], "movement")
    assert numpy(moves["steps"]).tolist() == [4] * 5 + [1]
    assert_allclose(moves["logits"][:5], model(FEATURES)[:5], atol=1e-6)
    first = model.head(model.encoder.pooler(model.encoder(FEATURES)["hidden_states"][1][:, 0]))
    assert_allclose(moves["logits"][5], first[5], atol=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make("classifier", False).answer_early(FEATURES), "train it with --early_exit"),
        (lambda: make("classifier", True).answer_early(FEATURES, rule="learned"), "--learned_exit"),
        (lambda: make("classifier", True).exit_probabilities(FEATURES), "--learned_exit"),
        (lambda: LearnedExit(prior=1.0), r"prior 1\.0"),
        (lambda: LearnedExit(beta=-1), "beta -1"),
        (lambda: AlbertClassifier(CONFIG.replace(equilibrium_solver="anderson"), 2, early_exit=True), "equilibrium"),
        (lambda: AlbertClassifier(CONFIG.replace(num_hidden_layers=1), 2, early_exit=LEARNED), "1 step"),
        (lambda: AlbertClassifier(CONFIG.replace(halting="act"), 2, early_exit=True), "halting 'act' exclude each"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with refused(message):
        call()
