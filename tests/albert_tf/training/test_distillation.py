"""Distillation: the distance by hand, gradients that reach the student only, and students that come to agree."""

import dataclasses

import keras
import numpy as np
import pytest
from scipy import stats

from albert_tf import AlbertConfig, AlbertEncoder, AlbertMultipleChoice, AlbertSpanPredictor, AlbertTokenClassifier
from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.checkpoints.vocabulary import keep_pieces
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from albert_tf.training.distillation import distil, divergence, load_teacher
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.pruning import pieces_within, prune_tokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

LENGTH = 10
STUDENT = AlbertConfig(
    vocab_size=30, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
# Large first weights: what it answers depends on what it reads.
TEACHER = STUDENT.replace(num_hidden_layers=2, intermediate_size=64, initializer_range=0.4)


def features(rows, seed=0):
    random = np.random.default_rng(seed)
    ids = random.integers(5, 30, (rows, LENGTH)).astype("int32")
    ids[:, 0] = 2
    segments = np.repeat(np.array([[0] * 3 + [1] * (LENGTH - 3)], "int32"), rows, axis=0)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": segments}


def pair(build):
    """(teacher, compiled student)."""
    keras.utils.set_random_seed(3)
    teacher, student = build(AlbertEncoder(TEACHER, seed=3)), build(AlbertEncoder(STUDENT, seed=4))
    return teacher, student


def test_divergence_is_kullback_and_leiblers():
    random = np.random.default_rng(0)
    given, shown = random.normal(size=(2, 4, 5)).astype("float32")
    softened = [np.exp(logits / 3) / np.exp(logits / 3).sum(axis=-1, keepdims=True) for logits in (given, shown)]
    expected = 9 * stats.entropy(softened[1], softened[0], axis=-1)
    np.testing.assert_allclose(divergence(given, shown, 3.0), expected, rtol=1e-4)
    np.testing.assert_allclose(divergence(shown, shown, 3.0), 0, atol=1e-6)
    masked = np.concatenate([given, np.full((4, 2), -1e30, "float32")], axis=-1)
    masked_shown = np.concatenate([shown, np.full((4, 2), -1e30, "float32")], axis=-1)
    np.testing.assert_allclose(divergence(masked, masked_shown, 3.0), expected, rtol=1e-4)


def test_loss_is_the_weighted_sum():
    teacher, student = pair(lambda encoder: AlbertClassifier(encoder, 3, dropout=0.0))
    own = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    student.compile("sgd", own)
    x, y = features(6), np.arange(6) % 3
    given, shown = student(x), teacher(x)
    distil(student, teacher, weight=0.3, temperature=2.0)
    expected = 0.7 * float(own(y, given)) + 0.3 * float(np.mean(divergence(given, shown, 2.0)))
    assert float(student.compute_loss(x, y, given, training=True)) == pytest.approx(expected, rel=1e-5)
    weights = np.array([1, 0, 0, 2, 0, 0], "float32")
    weighted = np.average(divergence(given, shown, 2.0), weights=weights)
    difference = student.compute_loss(x, y, given, weights) - 0.7 * own(y, given, weights)
    assert float(difference) == pytest.approx(0.3 * weighted, rel=1e-4)


def agreement(student, teacher, x):
    return float(np.mean(np.argmax(student(x), axis=-1) == np.argmax(teacher(x), axis=-1)))


@pytest.fixture(scope="module")
def teacher():
    """A classifier that has learned whether most of a row's ids are above 17."""
    keras.utils.set_random_seed(3)
    teacher = AlbertClassifier(AlbertEncoder(STUDENT.replace(num_hidden_layers=2), seed=3), 2, dropout=0.0)
    teacher.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = features(2000, seed=7)
    teacher.fit(x, np.mean(x["input_ids"][:, 1:] > 17, axis=1) > 0.5, batch_size=50, epochs=4, verbose=0)
    return teacher


@pytest.mark.parametrize("early_exit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_student_comes_to_agree_with_its_teacher_without_labels(teacher, early_exit):
    student = AlbertClassifier(AlbertEncoder(STUDENT, seed=4), 2, 0.0, early_exit)
    student.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [weight.copy() for weight in teacher.get_weights()]
    unseen = features(400, seed=9)
    at_first = agreement(student, teacher, unseen)
    distil(student, teacher, weight=1.0, temperature=2.0)
    student.fit(features(2000), np.random.default_rng(1).integers(0, 2, 2000), batch_size=50, epochs=4, verbose=0)
    assert at_first < 0.7 and agreement(student, teacher, unseen) > 0.9
    for old, new in zip(before, teacher.get_weights()):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
def test_without_the_teacher_random_labels_teach_nothing(teacher):
    """What the test above shows comes from the teacher."""
    student = AlbertClassifier(AlbertEncoder(STUDENT, seed=4), 2, dropout=0.0)
    student.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    distil(student, teacher, weight=0.0, temperature=2.0)
    student.fit(features(2000), np.random.default_rng(1).integers(0, 2, 2000), batch_size=50, epochs=2, verbose=0)
    assert agreement(student, teacher, features(400, seed=9)) < 0.7


def distance(student, teacher, x, y=None):
    """Of the whole loss with weight 1, in training mode."""
    return float(student.compute_loss(x, y, student(x, training=True)))


@pytest.mark.parametrize(
    "build, labels, loss",
    [
        (lambda encoder: AlbertRegressor(encoder, dropout=0.0), np.zeros((8, 1), "float32"), "mse"),
        (
            lambda encoder: AlbertTokenClassifier(encoder, 4, dropout=0.0),
            np.zeros((8, LENGTH), "int32"),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ),
        (lambda encoder: AlbertSpanPredictor(encoder), None, None),
        pytest.param(
            lambda encoder: AlbertSpanPredictor(encoder, joint=True, dropout=0.0), None, None, marks=pytest.mark.slow
        ),
        pytest.param(
            lambda encoder: AlbertMultipleChoice(encoder, dropout=0.0),
            np.zeros(8, "int32"),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["regression", "tags", "spans", "joint spans", "choices"],
)
@pytest.mark.few(1)
def test_every_kind_of_answer_can_be_taught(build, labels, loss):
    teacher, student = pair(build)
    student.compile(keras.optimizers.Adam(1e-2), loss, run_eagerly=True)
    x = features(8)
    if isinstance(student, AlbertSpanPredictor):
        x |= {"start_positions": np.full(8, 4, "int32"), "end_positions": np.full(8, 5, "int32")}
        x |= {"is_impossible": np.arange(8, dtype="int32") % 2}
    if isinstance(student, AlbertMultipleChoice):
        x = {name: np.stack([value, value[::-1]], axis=1) for name, value in x.items()}
    distil(student, teacher, weight=1.0, temperature=2.0)
    before = distance(student, teacher, x, labels)
    assert before > 0.01
    student.fit(x, labels, batch_size=8, epochs=10, verbose=0)
    assert distance(student, teacher, x, labels) < 0.6 * before


def test_the_student_is_saved_without_its_teacher(tmp_path):
    teacher, student = pair(lambda encoder: AlbertClassifier(encoder, 3))
    student.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    distil(student, teacher, 0.5, 2.0)
    student.fit(features(4), np.zeros(4), verbose=0)
    save_keras(student, tmp_path / "student.keras")
    loaded = load_keras(tmp_path / "student.keras", compile=True)
    assert loaded.count_params() == student.count_params() == AlbertClassifier(AlbertEncoder(STUDENT), 3).count_params()


def test_a_teacher_must_answer_what_the_student_does(tmp_path):
    words = WordPieceTokenizer("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", ""]).encode())
    other = WordPieceTokenizer("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "b", ""]).encode())
    teacher, student = pair(lambda encoder: AlbertClassifier(encoder, 3))
    save_keras(teacher, tmp_path / "model.keras")
    with pytest.raises(UserError, match="has another tokenizer"):
        load_teacher(tmp_path, student, words, 16, None)
    words.save(tmp_path)
    assert load_teacher(tmp_path, student, words, 16, None).count_params() == teacher.count_params()
    with pytest.raises(UserError, match="has another tokenizer"):
        load_teacher(tmp_path, student, other, 16, None)
    with pytest.raises(UserError, match="takes, 16"):
        load_teacher(tmp_path, student, words, 17, None)
    two = AlbertClassifier(AlbertEncoder(STUDENT), 2)
    with pytest.raises(UserError, match="is AlbertClassifier with 3 outputs, the student AlbertClassifier with 2"):
        load_teacher(tmp_path, two, words, 16, None)
    with pytest.raises(UserError, match="no model at"):
        load_teacher(tmp_path / "none", student, words, 16, None)


def test_a_teacher_reads_the_ids_of_a_vocabulary_that_was_cut_from_its_own(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    whole = WordPieceTokenizer("\n".join(pieces).encode())
    small, kept = prune_tokenizer(whole, [0] * 5 + [3, 0] * 7 + [1])
    teacher, _ = pair(lambda encoder: AlbertClassifier(encoder, 3))
    teacher = keep_pieces(teacher, range(len(pieces)))
    save_keras(teacher, tmp_path / "model.keras")
    whole.save(tmp_path)
    student = AlbertClassifier(AlbertEncoder(STUDENT.replace(vocab_size=small.vocab_size)), 3)
    found = load_teacher(tmp_path, student, small, 16, None)
    ids = np.array([[2, 5, 7, 3]], "int32")
    read = {name: np.full_like(ids, value) for name, value in (("input_mask", 1), ("segment_ids", 0))}
    np.testing.assert_allclose(found({"input_ids": ids, **read}), teacher({"input_ids": kept[ids], **read}), atol=1e-6)
    other = prune_tokenizer(WordPieceTokenizer("\n".join([*pieces[:-1], "z"]).encode()), [1] * len(pieces))[0]
    assert pieces_within(other, whole) is None
    more = WordPieceTokenizer("\n".join([*pieces, "z"]).encode())
    with pytest.raises(UserError, match="not one that the student's was cut from"):
        load_teacher(tmp_path, student, more, 16, None)


def test_run_finetuning_with_a_teacher(eagerly, tiny_run, tmp_path, monkeypatch):
    lines = [f"a {word} value\t{word}" for word in ("good", "bad") * 2]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    teacher = FinetuningSettings(
        task="classification", data_dir=str(tmp_path), init_from=str(tiny_run), output_dir=str(tmp_path / "teacher"),
        learning_rate=1e-3, train_batch_size=4, num_train_steps=1,
    )  # fmt: skip
    taught = []
    monkeypatch.setattr(finetuning, "distil", lambda *given: (taught.append(given[2:]), distil(*given)))
    finetuning.finetune(teacher)
    assert not taught
    student = dataclasses.replace(
        teacher, output_dir=str(tmp_path / "student"), teacher=str(tmp_path / "teacher"), distillation_weight=0.9
    )
    finetuning.finetune(student)
    assert taught == [(0.9, 2.0)] and (tmp_path / "student" / "task.json").is_file()
    for changes, message in (
        ({"distillation_weight": 1.5}, "--distillation_weight=1.5 must be from 0 to 1"),
        ({"temperature": 0.0}, "--temperature=0.0 must be above 0"),
    ):
        with pytest.raises(UserError, match=message):
            dataclasses.replace(student, **changes)
