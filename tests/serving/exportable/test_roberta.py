"""RoBERTa behind strings: its rows, positions, masks and answers in the graph are those of the Keras model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertClassifier, AlbertConfig, AlbertPretrainer, AlbertSpanPredictor, AlbertTokenClassifier
from albert_tf.answers import predict
from albert_tf.loading import Loaded
from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from serving import check as check_module
from serving.exportable import ExportOptions, make_exportable
from serving.inference import InferenceOptions
from serving.samples import whole_words
from tests.serving.conftest import Served
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.byte_bpe_file import AddedToken, ByteBPERules, as_tokenizer_json, byte_characters

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ROLES = dict(zip(("cls", "pad", "sep", "unk", "mask"), SPECIAL))
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("c", "at"), ("a", "t")]
TEXTS = ["the cat  sat", "", "Ünïcode 漢字 🙂\ttab ", "<s> is text </s>", "it's 1234 " * 6]
OTHERS = ["on the mat", "cat", "", "two\u00a0blanks", "the"]


@pytest.fixture(scope="module")
def tokenizer():
    pieces = [*SPECIAL, *byte_characters(), *(a + b for a, b in sorted(MERGES, key=lambda pair: pair == ("c", "at")))]
    ids = {piece: number for number, piece in enumerate(pieces)}
    added = tuple(AddedToken(name, ids[name], True, lstrip=name == "<mask>") for name in SPECIAL)
    merges = sorted(MERGES, key=lambda pair: pair == ("c", "at"))
    return ByteBPETokenizer(as_tokenizer_json(ByteBPERules(ids, merges, added, ROLES)))


@pytest.fixture(scope="module")
def config(tokenizer):
    return AlbertConfig(
        vocab_size=tokenizer.vocab_size, embedding_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=34, position_offset=2, type_vocab_size=1, sharing="none",
        layer_norm_eps=1e-5, hidden_act="gelu_erf", initializer_range=0.5,
    )  # fmt: skip


def exported(model, tokenizer, compute="float32", **options):
    inference = InferenceOptions(compute=compute)
    return make_exportable(model, ExportOptions(32, tokenizer, inference=inference, **options))


@pytest.mark.parametrize("padding", ["skipped", "computed"])
def test_pairs_of_texts_are_classified_as_by_the_model(config, tokenizer, padding):
    keras.utils.set_random_seed(1)
    model = AlbertClassifier(config, 3)
    task = {"inputs": ["first", "second"]}
    inference = InferenceOptions(compute="float32", padding=padding)
    served = make_exportable(model, ExportOptions(32, tokenizer, task=task, inference=inference))
    batch = served.pair(tf.constant(TEXTS), tf.constant(OTHERS))
    row = batch.input_ids[1].numpy()[batch.mask[1].numpy() > 0]
    assert row.tolist() == [0, 2, 2, *tokenizer.encode("cat"), 2]
    assert int(tf.reduce_max(batch.segment_ids)) == 0 and (batch.input_ids.numpy()[batch.mask.numpy() == 0] == 1).all()
    ours = predict(Loaded(model, tokenizer, task), TEXTS, OTHERS, 8)
    shares = tf.nn.softmax(served.answer(batch)["logits"]).numpy()
    np.testing.assert_allclose(shares, [list(one["probabilities"].values()) for one in ours], atol=1e-5)


def test_masks_are_filled_as_by_the_model(config, tokenizer):
    model = AlbertPretrainer(config, pair_task=None)
    texts = ["the <mask> sat", "<mask><mask> it"]
    served = exported(model, tokenizer)
    batch = served.masked_text(tf.constant(texts))
    # The blank before it is the mask's, as transformers reads it.
    row = [0, *tokenizer.encode("the"), 4, *tokenizer.encode(" sat"), 2]
    assert batch.input_ids[0].numpy()[: len(row)].tolist() == row
    filled = served.fill_text(batch)
    ours = predict(Loaded(model, tokenizer, {}), texts, None, 8)
    for row, (masks, pieces) in enumerate(zip(ours, filled["pieces"].numpy())):
        for mask, likeliest in enumerate(masks):
            assert [piece.encode() for piece, _ in likeliest] == pieces[mask].tolist()
            shares = filled["probabilities"][row, mask].numpy()
            np.testing.assert_allclose([share for _, share in likeliest], shares, atol=1e-5)


@pytest.mark.slow
def test_answers_are_found_in_contexts_as_by_the_model(config, tokenizer):
    model = AlbertSpanPredictor(config)
    contexts = ["the cat sat on the mat " * 5, "  Ünï 漢字 🙂 the cat", "x"]
    questions = ["who sat", "the what?", ""]
    served = exported(model, tokenizer)
    found = served.by_context(tf.constant(questions), tf.constant(contexts))
    ours = predict(Loaded(model, tokenizer, {"max_seq_length": 32}), questions, contexts, 8)
    np.testing.assert_allclose(found["score"], [one["score"] for one in ours], atol=1e-4)
    answers = [context[a:b] for context, a, b in zip(contexts, found["start"].numpy(), found["end"].numpy())]
    assert answers == [answer.decode() for answer in found["answer"].numpy()]


def test_words_are_tokenized_with_a_blank_before_each(config, tokenizer):
    """As transformers does with words and add_prefix_space: here by the `tokenizers` library."""
    library = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    theirs = library.Tokenizer.from_str(tokenizer.vocabulary.decode())
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    texts = ["the cat  sat", "Ünïcode 漢字 🙂\ttab ", "it's 12 the", ""]
    words = [text.split() for text in texts]
    expected = [theirs.encode(row, is_pretokenized=True) for row in words]
    rows = tagged_rows([TaggedExample(row, None) for row in words], tokenizer, 32, training=False)
    batch = exported(AlbertTokenClassifier(config, 3), tokenizer).words(tf.constant(texts))
    for number, (row, encoding) in enumerate(zip(words, expected)):
        ids, tokens = encoding.ids[:32], range(len(encoding.ids))
        heads = [min(i for i in tokens if encoding.word_ids[i] == word) for word in range(len(row))]
        assert rows.tokens["input_ids"][number].tolist() == ids
        assert rows.heads[number].tolist() == batch.columns[number].numpy()[: len(row)].tolist() == heads
        assert batch.batch.input_ids[number].numpy()[: len(ids)].tolist() == ids
    own_blank = tagged_rows([TaggedExample([" the", "", "cat"], None)], tokenizer, 32, training=False)
    ids = [0, *tokenizer.encode(" the"), 3, *tokenizer.encode(" cat"), 2]
    assert own_blank.tokens["input_ids"][0].tolist() == ids


@pytest.mark.parametrize("kind", [AlbertTokenClassifier, AlbertClassifier])
@pytest.mark.few(1)
def test_the_check_of_an_export_reads_texts_as_the_export_does(config, tokenizer, kind, monkeypatch):
    assert whole_words(tokenizer).tolist() == ["t", "the"]
    keras.utils.set_random_seed(0)
    model = kind(config, 3)
    served = exported(model, tokenizer)
    asked = Served(served)
    monkeypatch.setattr(check_module, "run_calls", lambda _, calls: [asked(name, **inputs) for name, inputs in calls])
    differences = check_module.check(None, model, served)
    assert differences.keys() == {"logits", "text logits"} and max(differences.values()) < 5e-5
