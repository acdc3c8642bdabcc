"""Tiny models of every head, and a WordPiece vocabulary that needs no training."""

import gc
import string
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import (
    AlbertClassifier,
    AlbertConfig,
    AlbertEncoder,
    AlbertMultipleChoice,
    AlbertPretrainer,
    AlbertSpanPredictor,
    AlbertTokenClassifier,
    LearnedExit,
)
from albert_tf.checkpoints.formats import save_keras
from albert_tf.models.classifiers import AlbertRegressor
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.export import ExportSettings, export
from serving.exportable import ExportOptions, make_exportable
from tfrecords.base import files
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer


@pytest.fixture(scope="session", autouse=True)
def no_garbage_of_other_rooms():
    """Every servable that closes collects garbage: it need not walk through all that earlier tests have left."""
    gc.collect()
    gc.freeze()


WORDS = "the a of in who what where paris france capital is river runs film fine dull cat sat mat two thousand"
HEADS = {
    "classifier": lambda encoder: AlbertClassifier(encoder, num_classes=3),
    "regressor": AlbertRegressor,
    "exiting classifier": lambda encoder: AlbertClassifier(encoder, num_classes=3, early_exit=True),
    "learned classifier": lambda encoder: AlbertClassifier(encoder, num_classes=3, early_exit=LearnedExit()),
    "exiting regressor": lambda encoder: AlbertRegressor(encoder, early_exit=True),
    "exiting token classifier": lambda encoder: AlbertTokenClassifier(encoder, num_classes=4, early_exit=True),
    "spans": lambda encoder: AlbertSpanPredictor(encoder, start_top=64, end_top=2),
    "joint spans": lambda encoder: AlbertSpanPredictor(encoder, joint=True, start_top=64, end_top=2),
    "multiple choice": AlbertMultipleChoice,
    "token classifier": lambda encoder: AlbertTokenClassifier(encoder, num_classes=4),
    "embedder": AlbertSentenceEmbedder,
    "cls embedder": lambda encoder: AlbertSentenceEmbedder(encoder, pooling="cls", normalize=False),
    "encoder": lambda encoder: encoder,
    "pretrainer": AlbertPretrainer,
}


@pytest.fixture(scope="session")
def tokenizer() -> WordPieceTokenizer:
    letters = [*string.ascii_lowercase, *string.digits, *",.?()'-_é"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), *letters, *(f"##{one}" for one in letters)]
    return WordPieceTokenizer("\n".join(pieces).encode())


@pytest.fixture(scope="session")
def make_model(tokenizer):
    """A model with the named head, its weights large enough that every token matters."""

    def make(head: str, seed: int = 0, **changes) -> keras.Model:
        keras.utils.set_random_seed(seed)
        config = AlbertConfig(
            vocab_size=tokenizer.vocab_size, embedding_size=8, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32, max_position_embeddings=48, initializer_range=0.3,
        ).replace(**changes)  # fmt: skip
        model = HEADS[head](AlbertEncoder(config))
        for variable in model.trainable_variables:
            if variable.name in ("bias", "output_bias", "beta"):
                variable.assign(keras.random.normal(variable.shape, stddev=0.3))
        return model

    return make


@pytest.fixture(scope="session")
def export_model(make_model, tokenizer, tmp_path_factory):
    """export_model(head or model, task=None, **settings): a model folder, exported; gives the version's path."""

    def make(head, task: dict | None = None, **changes) -> Path:
        folder = tmp_path_factory.mktemp("model")
        save_keras(make_model(head) if isinstance(head, str) else head, folder / "model.keras")
        tokenizer.save(folder)
        if task is not None:
            files.write_json(folder / "task.json", task)
        return export(ExportSettings(str(folder), str(folder / "exported"), **changes))

    return make


class Served:
    """A servable's signatures as functions of numpy arrays, as a server calls them."""

    def __init__(self, servable):
        self.exportable = servable
        self.signatures = servable.signatures()
        self._functions = {}

    def __call__(self, name: str, **inputs) -> dict[str, np.ndarray]:
        signature = self.signatures[name]
        if name not in self._functions:
            function = tf.function(signature.function, autograph=False)
            self._functions[name] = function.get_concrete_function(**signature.inputs)
        tensors = {key: tf.constant(inputs[key], spec.dtype) for key, spec in signature.inputs.items()}
        return {key: value.numpy() for key, value in self._functions[name](**tensors).items()}


@pytest.fixture(scope="session")
def serve(make_model, tokenizer):
    """serve(head or model, text=bool, **options) gives (model, Served)."""
    made = {}

    def make(head, text: bool = False, **options):
        key = (head if isinstance(head, str) else id(head), text, repr(options))
        if key not in made:
            model = make_model(head) if isinstance(head, str) else head
            options = {"max_seq_length": 48, "tokenizer": tokenizer if text else None} | options
            made[key] = model, Served(make_exportable(model, ExportOptions(**options)))
        return made[key]

    return make
