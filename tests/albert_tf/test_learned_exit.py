"""PALBERT's exit by formulas of its own in NumPy: what is trained, when rows leave; and the other rules in Keras."""

import itertools

import keras
import numpy as np
import pytest

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertRegressor, AlbertTokenClassifier, LearnedExit
from albert_tf.models.exit_rules import ExitRule
from albert_tf.training.distillation import distil
from tests.albert_tf.depth_cases import small
from tests.albert_tf.portable import fill
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(vocab_size=50)
IDS = np.random.default_rng(0).integers(5, 50, (6, 9)).astype("int32")
FEATURES = {"input_ids": IDS, "input_mask": (np.arange(9) < np.array([[9], [3], [5], [9], [1], [7]])).astype("int32")}
LABELS = np.array([0, 1, 2, 3, 1, 0])
LEARNED = LearnedExit(prior=0.2, beta=0.7)
MASK = FEATURES["input_mask"]
KINDS = {
    "classifier": lambda **options: AlbertClassifier(AlbertEncoder(CONFIG), 4, 0.0, **options),
    "regressor": lambda **options: AlbertRegressor(AlbertEncoder(CONFIG), 0.0, **options),
    "token classifier": lambda **options: AlbertTokenClassifier(AlbertEncoder(CONFIG, pooler=False), 4, 0.0, **options),
}
TARGETS = {
    "classifier": LABELS,
    "regressor": np.linspace(0, 1, 6, dtype="float32"),
    "token classifier": np.random.default_rng(2).integers(0, 4, IDS.shape),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def model(kind):
    """Of a kind; no test changes its weights."""
    model = make(kind)
    model.compile(keras.optimizers.SGD(0.0))
    return model


@pytest.fixture(scope="module")
def every(model):
    """The answers of every step."""
    return model.exit_logits(FEATURES)


def make(kind, exits=LEARNED):
    return fill(KINDS[kind](early_exit=exits))


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor).astype("float64")


def leaving(model):
    """p [steps, batch], by the paper's words."""
    states = [numpy(state)[:, 0] for state in model.encoder(FEATURES)["hidden_states"]]
    inner, score = (
        ([numpy(weight) for weight in layer.weights]) for layer in (model.exit_gate.inner, model.exit_gate.score)
    )
    p, still = [], np.ones(len(IDS))
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


def expected_loss(kind, model, weights):
    p = leaving(model)
    total = 0
    for share, logits in zip(p, model.exit_logits(FEATURES), strict=True):
        losses = answer_losses(kind, numpy(logits)) * weights
        count = weights.sum() if kind == "token classifier" else len(IDS)
        total += (losses * (share[:, None] if losses.ndim == 2 else share)).sum() / count
    prior = [0.2, 0.2 * 0.8, 0.2 * 0.8**2, 0.8**3]
    return total + 0.7 * np.mean(np.sum(p * np.log(p / np.array(prior)[:, None]), axis=0))


def test_the_loss_is_the_papers_and_evaluation_says_the_last_steps(kind, model, every):
    np.testing.assert_allclose(numpy(model.exit_probabilities(FEATURES)).T, leaving(model), atol=1e-6)
    ones = np.ones(TARGETS[kind].shape, "float32")
    weights = MASK.astype("float32") if ones.ndim == 2 else np.array([1, 0, 2, 1, 0.5, 3], "float32")
    for given in (None, weights):
        found = model.train_on_batch(FEATURES, TARGETS[kind], given, return_dict=True)["loss"]
        expected = expected_loss(kind, model, ones if given is None else given)
        assert float(found) == pytest.approx(expected, rel=1e-5)
    plain = float(np.mean(answer_losses(kind, numpy(every[-1]))))
    found = model.evaluate(FEATURES, TARGETS[kind], verbose=0, return_dict=True)["loss"]
    assert found == pytest.approx(plain, rel=1e-5)


def test_a_new_gate_is_the_prior():
    model = AlbertClassifier(AlbertEncoder(CONFIG.replace(initializer_range=1e-4)), 4, early_exit=LearnedExit(0.3))
    np.testing.assert_allclose(model.exit_probabilities(FEATURES)[0], [0.3, 0.21, 0.147, 0.343], atol=1e-4)


def test_fit_teaches_the_gate_and_keeps_it(tmp_path):
    """With all the weight on the prior, rows learn to leave as early as it says."""
    model = make("classifier", LearnedExit(prior=0.9, beta=100.0))
    before = model.exit_gate.score.get_weights()
    model.compile(keras.optimizers.Adam(0.08))
    model.fit(FEATURES, LABELS, epochs=8, verbose=0)
    assert (model.exit_gate.score.get_weights()[0] != before[0]).any()
    np.testing.assert_allclose(np.mean(model.exit_probabilities(FEATURES), axis=0)[0], 0.9, atol=0.05)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.learned_exit == LearnedExit(0.9, 100.0) and len(loaded.exit_heads) == 4
    np.testing.assert_array_equal(loaded.exit_probabilities(FEATURES), model.exit_probabilities(FEATURES))


def by_hand(kind, model, logits, rule, thresholds):
    """Steps of every row, from every step's answers and states."""
    every = [numpy(logits).reshape(len(IDS), -1, logits.shape[-1]) for logits in logits]
    states = [numpy(state) for state in model.encoder(FEATURES)["hidden_states"]]
    shares, steps = leaving(model), []
    for row, threshold in enumerate(thresholds):
        real = MASK[row] > 0 if kind == "token classifier" else [True]
        answers = [logits[row][real] for logits in every]
        seen = [state[row][MASK[row] > 0 if kind == "token classifier" else slice(0, 1)] for state in states]
        left, patience, step = 0.0, 0, 0
        for step in range(len(every)):
            moved = np.linalg.norm(seen[step + 1] - seen[step]) / np.linalg.norm(seen[step + 1])
            left += shares[step, row] if rule == "learned" else 0
            odds = np.exp(answers[step] - answers[step].max(-1, keepdims=True))
            sure = (odds / odds.sum(-1, keepdims=True)).max(-1).min()
            changed = step and np.abs(answers[step] - answers[step - 1]).max()
            same = (
                changed <= 0.1
                if kind == "regressor"
                else (answers[step].argmax(-1) == answers[step - 1].argmax(-1)).all()
            )
            patience = patience + 1 if step and same else 0
            if kind == "regressor":
                confident = step and changed <= threshold
            else:
                confident = sure >= threshold
            if {
                "confidence": confident, "patience": patience >= threshold, "learned": left > threshold,
                "movement": moved < threshold,
            }[rule]:  # fmt: skip
                break
        steps.append(step + 1)
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
        np.testing.assert_array_equal(found["logits"][row], every[step - 1][row])


def test_patience_begins_again_when_an_answer_changes():
    rule = ExitRule("classification", "patience")
    now, before = np.array([[2.0, 1.0], [2.0, 1.0]], "float32"), np.array([[1.0, 0.0], [0.0, 1.0]], "float32")
    decided, unchanged = rule.decide(now, before, np.array([1.0, 1.0], "float32"), np.array([2.0, 2.0], "float32"))
    assert numpy(unchanged).tolist() == [2, 0] and np.asarray(decided).tolist() == [True, False]


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
    np.testing.assert_allclose(moves["logits"][:5], model(FEATURES)[:5], atol=1e-6)
    first = model.head(model.encoder.pooler(model.encoder(FEATURES)["hidden_states"][1][:, 0]))
    np.testing.assert_allclose(moves["logits"][5], first[5], atol=1e-6)


def test_refusals():
    plain, exiting = make("classifier", False), make("classifier", True)
    with pytest.raises(UserError, match="train it with --early_exit"):
        plain.answer_early(FEATURES)
    for call in (lambda: exiting.answer_early(FEATURES, rule="learned"), lambda: exiting.exit_probabilities(FEATURES)):
        with pytest.raises(UserError, match="--learned_exit"):
            call()
    with pytest.raises(UserError, match=r"prior 1\.0"):
        LearnedExit(prior=1.0)
    with pytest.raises(UserError, match="beta -1"):
        LearnedExit(beta=-1)
    with pytest.raises(UserError, match="equilibrium"):
        AlbertClassifier(CONFIG.replace(equilibrium_solver="fixed_point"), 2, early_exit=True)
    with pytest.raises(UserError, match="1 step"):
        AlbertClassifier(CONFIG.replace(num_hidden_layers=1), 2, early_exit=LearnedExit())


def test_a_teacher_teaches_every_step():
    student = make("classifier")
    student.compile(keras.optimizers.SGD(0.0))
    own = float(student.train_on_batch(FEATURES, LABELS, return_dict=True)["loss"])
    distil(student, make("classifier", False), 0.5, 2.0)
    assert float(student.train_on_batch(FEATURES, LABELS, return_dict=True)["loss"]) != pytest.approx(own)
