"""Distillation: the distance by hand, gradients that reach the student only, and students that come to agree."""

import functools
import sys
from functools import partial

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from albert_tf import (
    AlbertClassifier,
    AlbertEncoder,
    AlbertMultipleChoice,
    AlbertRegressor,
    AlbertSpanPredictor,
    AlbertTokenClassifier,
)
from albert_tf.checkpoints.formats import save_keras
from albert_tf.checkpoints.resizing import keep_pieces
from albert_tf.training import distillation, finetuning
from albert_tf.training.distillation import distil, load_teacher
from tests.albert_tf.tiny import LENGTH, ROWS, batch, labels, small
from tests.refusals import changed, refused
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.tokenizers.vocabularies.pruning import prune_tokenizer

NONE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
STUDENT = small(num_hidden_layers=1, max_position_embeddings=16, **NONE)
# Large first weights: what it answers depends on what it reads.
TEACHER = STUDENT.replace(num_hidden_layers=2, intermediate_size=64, initializer_range=0.4)
OF_CLASSES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classifier(config=STUDENT, classes=3, **options):
    return AlbertClassifier(AlbertEncoder(config, seed=4), classes, dropout=0.0, **options)


def kl(given, shown, temperature):
    """Kullback's and Leibler's divergence of rows, with Hinton's factor."""
    given, shown = (special.softmax(np.asarray(logits, "float64") / temperature, axis=-1) for logits in (given, shown))
    return temperature**2 * stats.entropy(shown, given, axis=-1)


def test_loss_is_the_weighted_sum():
    teacher, student = classifier(TEACHER), classifier()
    student.compile("sgd", OF_CLASSES)
    x, y, weights = batch(), np.array([0, 1, 2, 0]), np.array([1, 0, 0, 2], "float32")
    given, shown = student(x), teacher(x)
    distil(student, teacher, weight=0.3, temperature=2.0)
    for sample_weight in (None, weights):
        own = float(OF_CLASSES(y, given, sample_weight))
        expected = 0.7 * own + 0.3 * np.average(kl(given, shown, 2), weights=sample_weight)
        assert float(student.compute_loss(x, y, given, sample_weight)) == pytest.approx(expected, rel=1e-4)
    assert not teacher.trainable_variables and student.trainable_variables


def of_logits(given, shown):
    return np.mean(kl(given, shown, 2))


def of_exits(given, shown):
    """The mean over steps, of which later ones count more."""
    return sum(step * of_logits(one, shown) for step, one in enumerate(given, 1)) / 3


def of_ends(given, shown):
    return np.mean([kl(given[name], shown[name], 2) for name in ("start_log_probs", "end_log_probs")])


def of_ends_and_answerable(given, shown):
    logits = (np.pad(side["answerable_logits"][:, None], [(0, 0), (0, 1)]) for side in (given, shown))
    return of_ends(given, shown) + of_logits(*logits) / 2


KINDS = {
    "regression": (AlbertRegressor, lambda given, shown: np.mean(np.square(given - shown))),
    "tags": (partial(AlbertTokenClassifier, num_classes=4), of_logits),
    "choices": (AlbertMultipleChoice, of_logits),
    "exits": (partial(AlbertClassifier, num_classes=3, early_exit=True), of_exits),
    "spans": (AlbertSpanPredictor, of_ends),
    "joint spans": (partial(AlbertSpanPredictor, joint=True), of_ends_and_answerable),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_can_be_taught(kind):
    build, expected = KINDS[kind]
    keras.utils.set_random_seed(3)
    teacher, student = (build(AlbertEncoder(TEACHER.replace(initializer_range=size))) for size in (0.4, 0.2))
    student.compile("sgd", None if "spans" in kind else OF_CLASSES)
    x, y = batch(kind), np.zeros((ROWS, LENGTH if kind == "tags" else 1), "int32")
    if "spans" in kind:
        x |= labels(kind)[0]
    distil(student, teacher, weight=1.0, temperature=2.0)
    given = student(x, training=True)
    wanted = float(expected(given, teacher(x)))
    assert wanted > 0.001 and float(student.compute_loss(x, y, given)) == pytest.approx(wanted, rel=1e-3)


LETTERS = "abcdefghijklmno"


def test_a_teacher_must_answer_what_the_student_does(tmp_path, monkeypatch):
    teacher, student, own, abc = classifier(TEACHER), classifier(), wordpiece(*LETTERS), ("a", "b", "c")
    save_keras(teacher, tmp_path / "model.keras")
    with refused("has another tokenizer"):
        load_teacher(tmp_path, student, own, 16, None)
    own.save(tmp_path)
    (tmp_path / "task.json").write_text('{"labels": ["a", "b", "c"]}')
    monkeypatch.setattr(distillation, "load", functools.cache(distillation.load))
    assert load_teacher(tmp_path, student, own, 16, abc).count_params() == teacher.count_params()
    kinds = "is AlbertClassifier with 3 outputs, the student AlbertClassifier with 2"
    for said, changes in {
        "has another tokenizer": {"tokenizer": wordpiece(*LETTERS[:-1], "z")},
        "not one that the student's was cut from": {"tokenizer": wordpiece(*LETTERS, "z")},
        "=17 is more than the 16 tokens": {"length": 17},
        kinds: {"student": classifier(classes=2)},
        "has the labels .*'b', 'c'.*, the student .*'c', 'b'": {"labels": ("a", "c", "b")},
        "no model at": {"path": tmp_path / "none"},
    }.items():
        given = dict(path=tmp_path, student=student, tokenizer=own, length=16, labels=None) | changes
        with refused(said):
            load_teacher(*given.values())


def test_a_teacher_reads_the_ids_of_a_vocabulary_that_was_cut_from_its_own(tmp_path):
    whole = wordpiece(*LETTERS)
    small, kept = prune_tokenizer(whole, [0] * 5 + [3, 0] * 7 + [1])
    teacher = keep_pieces(classifier(TEACHER), range(whole.vocab_size))
    save_keras(teacher, tmp_path / "model.keras")
    whole.save(tmp_path)
    found = load_teacher(tmp_path, classifier(STUDENT.replace(vocab_size=small.vocab_size)), small, 16, None)
    ids = np.array([[2, 5, 7, 3]], "int32")
    assert_allclose(found({"input_ids": ids}), teacher({"input_ids": kept[ids]}), atol=1e-6)


def test_run_finetuning_with_a_teacher(class_settings, finetuned, tmp_path, monkeypatch):
    """That a run without one has none, and how one with a teacher goes: test_resume.py."""
    monkeypatch.setattr(
        distillation, "distil", lambda student, teacher, *given: sys.exit([type(teacher).__name__, *given])
    )
    flags = f"--teacher='{finetuned}' --distillation_weight=0.9 --output_dir={tmp_path}"
    with pytest.raises(SystemExit) as taught:
        finetuning.finetune(changed(class_settings, flags))
    assert taught.value.code == ["AlbertClassifier", 0.9]
