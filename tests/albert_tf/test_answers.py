"""Texts straight into models: features by a callable, answers of a loaded folder."""

import json

import numpy as np
import pytest

import albert_tf
from albert_tf import (
    AlbertClassifier,
    AlbertConfig,
    AlbertEncoder,
    AlbertMultipleChoice,
    AlbertPretrainer,
    AlbertRegressor,
    AlbertSentenceEmbedder,
    AlbertSpanPredictor,
    AlbertTokenClassifier,
    Preprocessor,
    answers,
)
from tfrecords.base.errors import UserError
from tfrecords.framing import Framer, encode
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.training import train_tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "##s", "the", "was"]
CONFIG = AlbertConfig(
    vocab_size=len(PIECES),
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=24,
)
TEXTS = ["a good film", "the films was bad bad", "", "a " * 40]
OTHERS = ["bad", "a film " * 20, "good", "was " * 30]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return load_tokenizer(path)


def saved(model, tokenizer, folder, **task):
    tokenizer.save(folder)
    model.save(folder / "model.keras")
    (folder / "task.json").write_text(json.dumps(task))
    return albert_tf.load(folder)


def test_features_of_texts_are_framed_and_cut(tokenizer):
    found = Preprocessor(tokenizer, 12)(TEXTS, OTHERS)
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (np.int32, (4, 12)) for name in ("input_ids", "input_mask", "segment_ids")
    }
    framer, encoded = Framer(tokenizer, 12), [encode(tokenizer, texts) for texts in (TEXTS, OTHERS)]
    for row, (ids, segments) in enumerate(zip(*(part.to_list() for part in framer.pair(*encoded)[:2]))):
        assert found["input_ids"][row, : len(ids)].tolist() == ids
        assert found["segment_ids"][row, : len(ids)].tolist() == segments
        assert found["input_mask"][row].tolist() == [1] * len(ids) + [0] * (12 - len(ids))


@pytest.mark.parametrize("others", [None, OTHERS], ids=["single", "pairs"])
@pytest.mark.few(1)
def test_the_graphs_features_are_the_same(tokenizer, others):
    import tensorflow as tf

    preprocess = Preprocessor(tokenizer, 12)
    data = tf.data.Dataset.from_tensor_slices((TEXTS,) if others is None else (TEXTS, others)).batch(4)
    [in_graph] = data.map(preprocess)
    for name, array in preprocess(TEXTS, others).items():
        width = in_graph[name].shape[1]
        np.testing.assert_array_equal(array[:, :width], in_graph[name])
        assert not array[:, width:].any()


def test_texts_train_a_model_as_lists_and_as_a_pipeline(tokenizer):
    import tensorflow as tf

    preprocess, labels = Preprocessor(tokenizer, 12), np.array([1, 0, 0, 1])
    model = AlbertClassifier(CONFIG, 2)
    model.compile(run_eagerly=True)
    model.fit(preprocess(TEXTS), labels, verbose=0)
    data = tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(2)
    model.fit(data.map(lambda text, label: (preprocess(text), label)), verbose=0)
    assert model.predict(preprocess(np.array(TEXTS)), verbose=0).shape == (4, 2)


def test_what_is_no_list_of_texts_is_refused(tokenizer):
    preprocess = Preprocessor(tokenizer, 12)
    with pytest.raises(UserError, match=r"give a list of strings: \['good'\]"):
        preprocess("good")
    with pytest.raises(UserError, match="texts must be strings, not 3, a int"):
        preprocess(["good", 3])
    with pytest.raises(UserError, match="1 texts but 2 second ones"):
        preprocess(["good"], ["a", "b"])
    with pytest.raises(UserError, match="max_seq_length=2 leaves no room"):
        Preprocessor(tokenizer, 2)


def test_half_a_character_is_no_character(tmp_path):
    """A JSON escape or a name of a file can hold one; SentencePiece takes no text with it."""
    pieces = SentencePieceTokenizer(
        train_tokenizer(["a good film", "the bad film was"] * 9, 40, hard_vocab_limit=False)
    )
    ours, plain = (Preprocessor(pieces, 12)([f"{half} film", "a"], ["a", half]) for half in ("\ud83d", "\ufffd"))
    for name, array in ours.items():
        np.testing.assert_array_equal(array, plain[name])
    model = AlbertTokenClassifier(CONFIG.replace(vocab_size=pieces.vocab_size), 2)
    loaded = saved(model, pieces, tmp_path, labels=["O", "B-X"], inputs=["text"])
    found = loaded.predict(["\ud83d film", ["\ud83d", "film"]])
    assert [word for word, _ in found[0]] == ["\ufffd", "film"] and found[0] == found[1]


def test_a_classifier_names_its_answers(tokenizer, tmp_path):
    model = AlbertClassifier(CONFIG, 2)
    loaded = saved(model, tokenizer, tmp_path, labels=["no", "yes"], inputs=["text"], max_seq_length=16)
    found = loaded.predict(TEXTS, batch_size=3)
    logits = np.asarray(model(loaded.preprocessor()(TEXTS)))
    for answer, row in zip(found, logits, strict=True):
        assert answer["label"] == ("no", "yes")[row.argmax()]
        expected = np.exp(row) / np.exp(row).sum()
        np.testing.assert_allclose([answer["probabilities"][name] for name in ("no", "yes")], expected, rtol=1e-4)
    with pytest.raises(UserError, match=r"trained on single texts: predict\(texts\), with text"):
        loaded.predict(TEXTS, OTHERS)
    with pytest.raises(UserError, match="give a list of strings"):
        loaded.predict("a good film")
    assert loaded.predict([]) == []


def test_a_regressor_gives_numbers_of_pairs(tokenizer, tmp_path):
    model = AlbertRegressor(CONFIG)
    loaded = saved(model, tokenizer, tmp_path, inputs=["sentence1", "sentence2"])
    expected = np.asarray(model(loaded.preprocessor()(TEXTS, OTHERS)))[:, 0]
    np.testing.assert_allclose(loaded.predict(TEXTS, OTHERS), expected, atol=1e-5)
    with pytest.raises(UserError, match=r"pairs: predict\(firsts, seconds\), with sentence1, sentence2"):
        loaded.predict(TEXTS)


def test_a_tagger_tags_words(tokenizer, tmp_path):
    model = AlbertTokenClassifier(CONFIG, 2)
    loaded = saved(model, tokenizer, tmp_path, labels=["O", "B-X"], inputs=["text"])
    found = loaded.predict(["films was good", ["bad"], "a " * 40])
    logits = np.asarray(model(loaded.preprocessor()(["films was good"])))[0]
    # "films" is two pieces, of which the first speaks.
    assert found[0] == [(word, ("O", "B-X")[logits[i].argmax()]) for word, i in (("films", 1), ("was", 3), ("good", 4))]
    assert len(found[1]) == 1 and len(found[2]) == 40 and found[2][-1] == ("a", None) and found[2][0][1] is not None


@pytest.mark.parametrize("joint", [False, True])
def test_spans_are_texts_of_the_context(tokenizer, tmp_path, joint):
    loaded = saved(AlbertSpanPredictor(CONFIG, joint=joint), tokenizer, tmp_path, null_threshold=None)
    contexts = ["the film was good", "a bad film " * 20]
    found = loaded.predict(["a film", "was the film bad"], contexts)
    for answer, context in zip(found, contexts, strict=True):
        assert answer["answer"] and answer["answer"] in context and np.isfinite(answer["null_odds"])
    with pytest.raises(UserError, match=r"predict\(questions, contexts\)"):
        loaded.predict(["a film"])
    with pytest.raises(UserError, match="1 texts but 2 second ones; give each a partner"):
        loaded.predict(["a film"], contexts)


@pytest.mark.parametrize("model", ["embedder", "encoder"])
def test_vectors_do_not_depend_on_the_batch(tokenizer, tmp_path, model):
    model = AlbertSentenceEmbedder(CONFIG) if model == "embedder" else AlbertEncoder(CONFIG)
    loaded = saved(model, tokenizer, tmp_path)
    vectors = loaded.predict(TEXTS)
    assert vectors.shape == (4, 16) and vectors.dtype == np.float32
    np.testing.assert_allclose(loaded.predict(TEXTS[1:2]), vectors[1:2], atol=1e-5)


def test_an_encoder_is_traced_once(tokenizer, tmp_path, monkeypatch):
    traced, call = [], AlbertEncoder.call
    monkeypatch.setattr(AlbertEncoder, "call", lambda *given, **named: (traced.append(1), call(*given, **named))[1])
    loaded = saved(AlbertEncoder(CONFIG), tokenizer, tmp_path)
    loaded.predict(TEXTS)
    before = len(traced)
    loaded.predict(TEXTS[:2])
    assert before and len(traced) == before


def test_masked_words_are_guessed(tokenizer, tmp_path, monkeypatch):
    model = AlbertPretrainer(CONFIG)
    loaded = saved(model, tokenizer, tmp_path)
    [found] = loaded.predict(["the [MASK] was [MASK]"])
    ids = np.array([[2, 10, 4, 11, 4, 3]], "int32")
    logits = np.asarray(model({"input_ids": ids})["masked_lm_logits"])[0]
    for guesses, position in zip(found, (2, 4), strict=True):
        assert [piece for piece, _ in guesses] == [PIECES[i] for i in np.argsort(-logits[position])[:5]]
    several = ["[MASK] was", "the [MASK] was [MASK]", "a [MASK]"]
    whole = loaded.predict(several)
    monkeypatch.setattr(answers, "_MOST_LOGITS", 1)
    for one, other in zip(loaded.predict(several), whole, strict=True):
        assert [[piece for piece, _ in guesses] for guesses in one] == [[piece for piece, _ in g] for g in other]
    with pytest.raises(UserError, match=r"has no \[MASK\] in its first 24 tokens"):
        loaded.predict(["the film"])


def test_what_answers_no_texts_says_so(tokenizer, tmp_path):
    with pytest.raises(UserError, match="predict takes no texts for an AlbertMultipleChoice"):
        saved(AlbertMultipleChoice(CONFIG), tokenizer, tmp_path).predict(["a"])
    (tmp_path / "bare").mkdir()
    AlbertClassifier(CONFIG, 2).save(tmp_path / "bare" / "model.keras")
    with pytest.raises(UserError, match="there is no tokenizer beside the model"):
        albert_tf.load(tmp_path / "bare").predict(["a"])
