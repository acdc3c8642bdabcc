"""A fitted keras-hub classifier with its preprocessor is a model here, with the same answers to texts, by one call."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertRegressor
from albert_tf.checkpoints.keras_hub import read_preprocessor
from albert_tf.loading import load as loading
from tests.albert_tf.depth_cases import filled
from tests.albert_tf.test_loading import VOCABULARY
from tests.refusals import refused
from tfrecords.tokenizers.bytes.byte_bpe_file import byte_characters
from tfrecords.tokenizers.vocabularies.training import train_tokenizer

pytestmark = pytest.mark.usefixtures("eagerly")
hub = pytest.importorskip("keras_hub").models

SIZES = dict(num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24, max_sequence_length=16)
WORDS = f"{VOCABULARY} caf ##é ##e café the The ( ) ! . , 日 本 x ##x".split()
TEXTS = ["a b", "The café (the b)!", "日本 a", "b " * 20, ""]


def classifier(family, tokenizer, backbone, **head):
    preprocessor = getattr(hub, f"{family}TextClassifierPreprocessor")(tokenizer, sequence_length=12)
    backbone = getattr(hub, f"{family}Backbone")(**SIZES, **backbone)
    return getattr(hub, f"{family}TextClassifier")(backbone, preprocessor=preprocessor, **{"num_classes": 3} | head)


def bert(lowercase=True, **head):
    tokenizer = hub.BertTokenizer(vocabulary=WORDS, lowercase=lowercase)
    return classifier("Bert", tokenizer, {"vocabulary_size": len(WORDS), "num_segments": 2}, **head)


def roberta(**head):
    pieces = list(dict.fromkeys(["<s>", "<pad>", "</s>", "<mask>", *byte_characters(), "Ġa", "Ġt"]))
    tokenizer = hub.RobertaTokenizer({piece: i for i, piece in enumerate(pieces)}, ["Ġ a", "Ġ t"])
    return classifier("Roberta", tokenizer, {"vocabulary_size": len(pieces)}, **head)


def albert():
    texts = [*TEXTS[:3], "the quick brown fox"] * 8
    tokenizer = hub.AlbertTokenizer(train_tokenizer(texts, 60, hard_vocab_limit=False))
    more = dict(num_groups=1, num_inner_repetitions=1, embedding_dim=8, num_segments=2)
    return classifier("Albert", tokenizer, {"vocabulary_size": tokenizer.vocabulary_size(), **more})


def answers(task, texts):
    features = task.preprocessor(x=texts)
    return np.asarray(keras.Model.__call__(task, features))


def ours(loaded, texts):
    return np.asarray(loaded.model(loaded.preprocessor()(*([texts] if isinstance(texts, list) else texts))))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(bert, id="bert", marks=pytest.mark.slow), pytest.param(roberta, id="roberta"),
        pytest.param(albert, id="albert"), pytest.param(lambda: bert(False), id="cased")
    ]
)  # fmt: skip
def test_the_answers_are_those_of_keras_hub(make):
    task = filled(make())
    loaded = loading.load(task)
    assert loaded.task == {"max_seq_length": 12}
    assert_allclose(ours(loaded, TEXTS), answers(task, TEXTS), atol=2e-5)
    firsts, seconds = ["a b a b a b a b a", "b", "the b a"], ["b", "a b a b a b a b a b", "b a the b a b a b a b"]
    pairs = answers(task, (tf.constant(firsts), tf.constant(seconds)))
    assert_allclose(ours(loaded, (firsts, seconds)), pairs, atol=2e-5)


def test_frozen_layers_and_adapters_are_read_as_they_compute():
    task = filled(bert())
    task.backbone.trainable = False
    for layer in task.backbone.transformer_layers:
        layer._feedforward_intermediate_dense.enable_lora(2)
        layer._feedforward_intermediate_dense.lora_kernel_b.assign(np.full((2, 24), 0.3))
    assert_allclose(ours(loading.load(task), TEXTS), answers(task, TEXTS), atol=2e-5)


@pytest.mark.parametrize(
    "head, kind, is_probability",
    [
        (dict(num_classes=3, activation="softmax"), AlbertClassifier, True),
        (dict(num_classes=3, activation="sigmoid"), AlbertClassifier, True),
        (dict(num_classes=1, activation="sigmoid"), AlbertRegressor, True),
        (dict(num_classes=1), AlbertRegressor, False),
    ],
    ids=str,
)
def test_what_scores_pass_through_is_followed(head, kind, is_probability):
    task = filled(bert(**head))
    loaded = loading.load(task, labels=["x", "y", "z"]) if kind is AlbertClassifier else loading.load(task)
    found, expected = loaded.predict(TEXTS), answers(task, TEXTS)
    if kind is AlbertClassifier:
        assert loaded.model.multi_label == (head["activation"] == "sigmoid")
        found = [list(answer["probabilities"].values()) for answer in found]
    assert_allclose(np.reshape(found, expected.shape), expected, atol=2e-5)


def test_its_preset_folder_is_the_same(tmp_path):
    task = filled(bert())
    task.save_to_preset(str(tmp_path / "preset"))
    again = loading.load(tmp_path / "preset")
    assert again.task["max_seq_length"] == 12
    assert_array_equal(ours(again, TEXTS), ours(loading.load(task), TEXTS))


class Odd:
    """A tokenizer that reads another vocabulary's ids."""

    def __init__(self, inside):
        self.inside, self.lowercase, self.strip_accents = inside, inside.lowercase, inside.strip_accents

    def save_to_preset(self, folder):
        self.inside.save_to_preset(folder)

    def __call__(self, texts):
        return [[0, *row] for row in self.inside(texts)]


def waterfall():
    task = bert()
    task.preprocessor.truncate = "waterfall"
    return task


# What is loaded, and the sentence.
REFUSED = [
    (lambda: bert(activation="relu"), "'relu' are not known .* softmax"),
    (lambda: bert(num_classes=1, activation="softmax"), "are linear, sigmoid"),
    (lambda: roberta(hidden_dim=24), "its head has hidden_dim 24"),
    (waterfall, "cuts pairs by 'waterfall'"),
    (keras.Sequential, "not a Sequential"),
    (lambda: hub.DistilBertBackbone(vocabulary_size=8, **SIZES), "DistilBertBackbone is none of"),
    (lambda: "hf://", "keras-hub cannot load the preset 'hf://'"),
]


def test_what_is_not_known_is_refused():
    for make, message in REFUSED:
        with refused(message):
            loading.load(make())
    with refused("reads letters, .* otherwise than any"):
        read_preprocessor(Odd(hub.BertTokenizer(vocabulary=WORDS)))
