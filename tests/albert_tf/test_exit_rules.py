"""Exits by formulas of their own in NumPy: what is trained and stored, and when rows leave by each rule."""

import itertools

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, softmax

from albert_tf import AlbertClassifier, AlbertEncoder
from albert_tf.checkpoints import formats
from tests.albert_tf.depth_cases import filled, small
from tests.albert_tf.tiny import CLASSES, KINDS, numbers
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small()
LENGTHS = np.array([[9], [3], [5], [9], [1], [7]])
MASK = (np.arange(9) < LENGTHS).astype("int32")
FEATURES = {"input_ids": np.random.default_rng(0).integers(5, 40, (6, 9)).astype("int32"), "input_mask": MASK}
TARGETS = {
    "classifier": np.array([0, 1, 2, 1, 1, 0]),
    "regressor": np.linspace(0, 1, 6, dtype="float32"),
    "tagger": np.random.default_rng(2).integers(0, CLASSES, MASK.shape),
}


def make(kind, exits=True):
    return filled(KINDS[kind](CONFIG, dropout=0.0, early_exit=exits))


@pytest.fixture(scope="module", params=TARGETS)
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


def answer_losses(kind, logits):
    """Of each answer, [batch] or [batch, sequence]."""
    if kind == "regressor":
        return (logits[:, 0] - TARGETS[kind]) ** 2
    return -np.take_along_axis(log_softmax(logits, axis=-1), TARGETS[kind][..., None], axis=-1)[..., 0]


def expected_loss(kind, every, weights):
    total = 0
    for share, logits in zip(np.arange(1, 5) / 10, every, strict=True):
        losses = answer_losses(kind, numbers(logits)) * weights
        total += share * losses.sum() / (weights.sum() if kind == "tagger" else 6)
    return total


def test_the_loss_is_the_papers_and_evaluation_says_the_last_steps(kind):
    """PABEE's, which weighs steps by their number; metrics are the last step's too."""
    model, is_number = make(kind), kind == "regressor"
    model.compile(keras.optimizers.SGD(0.0), metrics=["mse" if is_number else "accuracy"])
    every, targets = model.exit_logits(FEATURES), TARGETS[kind]
    ones = np.ones(targets.shape, "float32")
    weights = MASK.astype("float32") if ones.ndim == 2 else np.array([1, 0, 2, 1, 0.5, 3], "float32")
    for given in (None, weights):
        model.reset_metrics()
        found = model.train_on_batch(FEATURES, targets, given, return_dict=True)
        expected = expected_loss(kind, every, ones if given is None else given)
        assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)
        if given is None:
            last = numbers(every[-1])
            figure = np.mean((last[:, 0] - targets) ** 2) if is_number else np.mean(last.argmax(-1) == targets)
            assert float(found["mse" if is_number else "accuracy"]) == pytest.approx(figure, rel=1e-5)
    found = model.evaluate(FEATURES, targets, verbose=0)[0]
    assert found == pytest.approx(float(np.mean(answer_losses(kind, last))), rel=1e-5)


def by_hand(kind, model, every, rule, thresholds):
    """Steps of every row, from every step's answers and states."""
    every = np.array([numbers(logits).reshape(6, -1, logits.shape[-1]) for logits in every])
    states = np.array([numbers(state) for state in model.encoder(FEATURES)["hidden_states"]])
    steps = []
    for row, threshold in enumerate(thresholds):
        real = MASK[row] > 0 if kind == "tagger" else slice(0, 1)
        answers, seen = every[:, row, real], states[:, row, real]
        sizes = [np.linalg.norm(part, axis=(1, 2)) for part in (np.diff(seen, axis=0), seen[1:])]
        if kind == "regressor":
            changes = np.abs(np.diff(answers, axis=0)).max(axis=(1, 2))
            same, confident = changes <= 0.1, [False, *(changes <= threshold)]
        else:
            best = answers.argmax(-1)
            same = (best[1:] == best[:-1]).all(axis=1)
            confident = softmax(answers, axis=-1).max(-1).min(axis=1) >= threshold
        patience = itertools.accumulate([0, *same], lambda count, is_same: (count + 1) * is_same)
        leaves = {
            "confidence": confident, "patience": [count >= threshold for count in patience],
            "movement": sizes[0] / sizes[1] < threshold
        }[rule]  # fmt: skip
        steps.append(1 + int(np.argmax([*leaves[:-1], True])))
    return steps


@pytest.mark.parametrize("rule", ["confidence", "patience", "movement"])
def test_rows_leave_by_every_rule(kind, model, every, rule):
    confidence = [0.0, 0.4, 0.8, 0.2, 2.0, 0.6] if kind == "regressor" else [0.0, 0.5, 0.7, 0.8, 2.0, 0.9]
    thresholds = {
        "confidence": confidence, "patience": [0, 1, 2, 9, 1, 2],
        "movement": [0.0, 0.5, 0.6, 9.0, 0.7, 0.4]
    }[rule]  # fmt: skip
    found = model.answer_early(FEATURES, thresholds, rule)
    expected = by_hand(kind, model, every, rule, thresholds)
    assert len(set(expected)) > 1, "this test needs rows that leave at different steps"
    assert numbers(found["steps"]).tolist() == expected
    for row, step in enumerate(expected):
        assert_array_equal(found["logits"][row], every[step - 1][row])


def test_by_movement_any_model_leaves():
    """What it answers at a step is what its only head says there."""
    model = make("classifier", False)
    moves = model.answer_early(FEATURES, [0.0] * 5 + [9.0], "movement")
    assert numbers(moves["steps"]).tolist() == [4] * 5 + [1]
    assert_allclose(moves["logits"][:5], model(FEATURES)[:5], atol=1e-6)
    first = model.head(model.encoder.pooler(model.encoder(FEATURES)["hidden_states"][1][:, 0]))
    assert_allclose(moves["logits"][5], first[5], atol=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make("classifier", False).answer_early(FEATURES), "train it with --early_exit"),
        (lambda: make("classifier", True).answer_early(FEATURES, rule="mood"), "rule 'mood' is none of"),
        (lambda: AlbertClassifier(CONFIG.replace(equilibrium_solver="anderson"), 2, early_exit=True), "equilibrium"),
        (lambda: AlbertClassifier(CONFIG.replace(halting="act"), 2, early_exit=True), "halting 'act' exclude each"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with refused(message):
        call()


@pytest.mark.parametrize("walk", ["unrolled", "loop"])
def test_a_step_is_what_a_shallower_model_says(walk):
    """Shared blocks: the second exit of four steps is the only head of a model of two."""
    deep, model = make("classifier"), AlbertClassifier(AlbertEncoder(CONFIG, walk=walk), CLASSES, early_exit=True)
    model.set_weights(deep.get_weights())
    shallow = AlbertClassifier(CONFIG.replace(num_hidden_layers=2), CLASSES)
    shallow.encoder.set_weights(deep.encoder.get_weights())
    shallow.head.set_weights(deep.exit_heads[1].get_weights())
    assert_allclose(model.exit_logits(FEATURES)[1], shallow(FEATURES), atol=1e-5)


@pytest.mark.parametrize("form", ["official", "huggingface"])
def test_other_formats_keep_the_last_head(form, tmp_path):
    model = make("classifier")
    formats.save(model, tmp_path / "there", form)
    loaded = formats.load(tmp_path / "there")
    assert loaded.exit_heads == []
    assert_allclose(loaded(FEATURES), model(FEATURES), atol=1e-5)
