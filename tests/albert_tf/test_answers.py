"""Texts straight into models: features by a callable, answers of a loaded folder."""

import os

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

import albert_tf
from albert_tf import (
    AlbertClassifier,
    AlbertEncoder,
    AlbertMultipleChoice,
    AlbertPretrainer,
    AlbertRegressor,
    AlbertSpanPredictor,
    AlbertTokenClassifier,
    Preprocessor,
)
from albert_tf.loaded import Loaded
from albert_tf.loading import answers
from serving.exportable import ExportOptions, make_exportable
from tests.albert_tf.tiny import small, write_model
from tests.refusals import refused
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.vocabularies.training import train_tokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("eagerly")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "##s", "the", "was"]
TOKENIZER = WordPieceTokenizer("\n".join(PIECES).encode())
CONFIG = small(vocab_size=len(PIECES), max_position_embeddings=24)
TEXTS = ["a good film", "the films was bad bad", "", "a " * 40]
OTHERS = ["bad", "a film " * 20, "good", "was " * 30]
PREPROCESS = Preprocessor(TOKENIZER, 12)


def saved(model, folder, tokenizer=TOKENIZER, **task):
    return albert_tf.load(write_model(folder, model, tokenizer, **task))


def outputs(loaded, *texts):
    """What the model gives to its own features."""
    return np.asarray(loaded.model(loaded.preprocessor()(*texts)))


def test_a_forked_process_is_told_to_load_the_model_itself(tmp_path):
    """TensorFlow would wait for ever in it."""
    loaded = saved(AlbertClassifier(AlbertEncoder(CONFIG), 2), tmp_path)
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return
    try:
        loaded.predict(["a good film"])
    except UserError as error:
        os._exit(7 if "load the model in each worker" in str(error) else 8)
    finally:
        os._exit(9)


@pytest.mark.parametrize("texts", [(TEXTS,), (TEXTS, OTHERS)])
@pytest.mark.few(1)
def test_texts_train_a_model_as_lists_and_as_a_pipeline_of_the_same_features(texts):
    labels, model = np.array([1, 0, 0, 1]), AlbertClassifier(CONFIG, 2)
    model.compile(run_eagerly=True)
    model.fit(PREPROCESS(*texts), labels, verbose=0)
    data = tf.data.Dataset.from_tensor_slices((*texts, labels)).batch(4)
    data = data.map(lambda *given: (PREPROCESS(*given[:-1]), given[-1]))
    [(in_graph, _)] = data
    for name, array in PREPROCESS(*texts).items():
        width = in_graph[name].shape[1]
        assert_array_equal(array[:, :width], in_graph[name])
        assert not array[:, width:].any()
    model.fit(data, verbose=0)
    assert model.predict(PREPROCESS(np.array(TEXTS)), verbose=0).shape == (4, 2)


def test_half_a_character_is_no_character(tmp_path):
    """A JSON escape or a name of a file can hold one; SentencePiece takes no text with it."""
    vocabulary = train_tokenizer(["a good film", "the bad film was"] * 9, 40, hard_vocab_limit=False)
    pieces = SentencePieceTokenizer(vocabulary)
    ours, plain = (Preprocessor(pieces, 12)([f"{half} film", "a"], ["a", half]) for half in ("\ud83d", "\ufffd"))
    for name, array in ours.items():
        assert_array_equal(array, plain[name])
    model = AlbertTokenClassifier(CONFIG.replace(vocab_size=pieces.vocab_size), 2)
    found = saved(model, tmp_path, pieces, labels=["O", "B-X"]).predict(["\ud83d film", ["\ud83d", "film"]])
    assert [word for word, _ in found[0]] == ["\ufffd", "film"] and found[0] == found[1]


def test_a_classifier_names_its_answers(tmp_path):
    loaded = saved(AlbertClassifier(CONFIG, 2), tmp_path, labels=["no", "yes"], inputs=["text"], max_seq_length=16)
    for answer, row in zip(loaded.predict(TEXTS, batch_size=3), outputs(loaded, TEXTS), strict=True):
        assert answer["label"] == ("no", "yes")[row.argmax()]
        expected = np.exp(row) / np.exp(row).sum()
        assert_allclose([answer["probabilities"][name] for name in ("no", "yes")], expected, rtol=1e-4)
    with refused(r"trained on single texts: predict\(texts\), with text"):
        loaded.predict(TEXTS, OTHERS)
    assert loaded.predict([]) == []


def test_a_regressor_gives_numbers_of_pairs(tmp_path):
    loaded = saved(AlbertRegressor(CONFIG), tmp_path, inputs=["sentence1", "sentence2"])
    assert_allclose(loaded.predict(TEXTS, OTHERS), outputs(loaded, TEXTS, OTHERS)[:, 0], atol=1e-5)
    with refused(r"pairs: predict\(firsts, seconds\), with sentence1, sentence2"):
        loaded.predict(TEXTS)
    with refused(r"predict\(questions, contexts\)"):
        Loaded(AlbertSpanPredictor(CONFIG), TOKENIZER, {}).predict(TEXTS)


def test_a_tagger_tags_words(tmp_path):
    loaded = saved(AlbertTokenClassifier(CONFIG, 2), tmp_path, labels=["O", "B-X"], inputs=["text"])
    (films, was, good), bad, many = loaded.predict(["films was good", ["bad"], "a " * 40])
    # "films" is two pieces, of which the first speaks.
    names = [("O", "B-X")[row.argmax()] for row in outputs(loaded, ["films was good"])[0]]
    assert [films, was, good] == [("films", names[1]), ("was", names[3]), ("good", names[4])]
    assert len(bad) == 1 and len(many) == 40 and many[-1] == ("a", "O") and many[0][1] is not None


def test_masked_words_are_guessed(tmp_path, monkeypatch):
    # Rows of the table without a piece are no answers, and have their share of the probability.
    loaded = saved(AlbertPretrainer(CONFIG.replace(vocab_size=20, initializer_range=0.5)), tmp_path)

    def pieces(texts):
        return [[[piece for piece, _ in guesses] for guesses in found] for found in loaded.predict(texts)]

    ids = np.array([[2, 10, 4, 11, 4, 3]], "int32")
    logits = loaded.model({"input_ids": ids})["masked_lm_logits"]
    shares = tf.nn.softmax(logits).numpy()[0, [2, 4], : len(PIECES)]
    best = np.argsort(-shares)[:, :5]
    (found,) = loaded.predict(["the [MASK] was [MASK]"])
    assert [[piece for piece, _ in guesses] for guesses in found] == [[PIECES[i] for i in row] for row in best]
    options = ExportOptions(24, tokenizer=loaded.tokenizer, task=loaded.task)
    fill = make_exportable(loaded.model, options).signatures()["fill_mask"].function
    for given in (
        np.array([[share for _, share in guesses] for guesses in found]),
        fill(text=np.array(["the [MASK] was [MASK]"]))["probabilities"][0],
    ):
        assert_allclose(given, np.take_along_axis(shares, best, 1), rtol=1e-4)
    several = ["[MASK] was", "the [MASK] was [MASK]", "a [MASK]"]
    whole = pieces(several)
    monkeypatch.setattr(answers, "_MOST_LOGITS", 1)
    assert pieces(several) == whole
    with refused(r"has no \[MASK\] in its first 24 tokens"):
        loaded.predict(["the film"])


def test_what_answers_no_texts_says_so(tmp_path):
    AlbertClassifier(CONFIG, 2).save(tmp_path / "model.keras")
    with refused("there is no tokenizer next to the model"):
        albert_tf.load(tmp_path).predict(["a"])
    with refused("predict takes no texts for an AlbertMultipleChoice"):
        saved(AlbertMultipleChoice(CONFIG), tmp_path).predict(["a"])
