"""Tiny models of every head and family with a vocabulary each, their signatures, and exports written once a run."""

import functools
import gc
import hashlib
import random
import signal
import string

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
    XlnetPretrainer,
)
from albert_tf.checkpoints.formats import save_keras
from albert_tf.models.classifiers import AlbertRegressor
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder, AlbertSparseEmbedder
from serving.export import ExportSettings, export
from serving.exportable import ExportOptions, make_exportable
from tests.serving.gateway.conftest import fake_server, front_of  # noqa: F401
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.base import files
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.bytes.byte_bpe_file import AddedToken, ByteBPERules, as_tokenizer_json, byte_characters
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.training import train_tokenizer


@pytest.fixture(scope="session", autouse=True)
def no_garbage_of_other_rooms():
    """Every servable that closes collects garbage: it need not walk through all that earlier tests have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def exports_are_not_asked_first():
    """An export loads what it wrote and asks every signature: half of its time, and tests ask what they export."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving.exporting.ask_once", lambda version, exportable: None)
        yield


@pytest.fixture
def handlers():
    """Those of SIGTERM and SIGINT are put back after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


WORDS = "the a of in who what where paris france capital is river runs film fine dull cat sat mat two thousand"
HEADS = {
    "classifier": lambda encoder: AlbertClassifier(encoder, num_classes=3),
    "regressor": AlbertRegressor,
    "exiting classifier": lambda encoder: AlbertClassifier(encoder, num_classes=3, early_exit=True),
    "exiting regressor": lambda encoder: AlbertRegressor(encoder, early_exit=True),
    "exiting token classifier": lambda encoder: AlbertTokenClassifier(encoder, num_classes=4, early_exit=True),
    "spans": lambda encoder: AlbertSpanPredictor(encoder, start_top=64, end_top=2),
    "joint spans": lambda encoder: AlbertSpanPredictor(encoder, joint=True, start_top=64, end_top=2),
    "multiple choice": AlbertMultipleChoice,
    "token classifier": lambda encoder: AlbertTokenClassifier(encoder, num_classes=4),
    "embedder": AlbertSentenceEmbedder,
    "cls embedder": lambda encoder: AlbertSentenceEmbedder(encoder, pooling="cls", normalize=False),
    "sparse embedder": AlbertSparseEmbedder,
    "encoder": lambda encoder: encoder,
    "pretrainer": AlbertPretrainer,
    "words alone": lambda encoder: AlbertPretrainer(encoder, pair_task=None),
    "permutation pretrainer": XlnetPretrainer,
}
# What the configurations of other families than ALBERT with WordPiece have.
FAMILIES = {
    "albert": {},
    "sentencepiece": {},
    "low rank": {"depth_lora_rank": 2, "depth_plan": "1+1x2", "num_hidden_layers": 3},
    "xlnet": {"position_type": "relative", "type_vocab_size": 4},
    "remembering xlnet": {"position_type": "relative", "type_vocab_size": 4, "memory_length": 8},
    "roberta": {
        "max_position_embeddings": 50, "position_offset": 2, "type_vocab_size": 1, "sharing": "none",
        "layer_norm_eps": 1e-5, "hidden_act": "gelu_erf"
    }
}  # fmt: skip
LABELS, SINGLE = ["dull", "so so", "fine"], {"inputs": ["text"]}
LABELLED = SINGLE | {"labels": LABELS}
# Of each version that is saved, loaded and served: head, family, task and settings of its export.
EXPORTS = {
    "ids": ("exiting classifier", "albert", LABELLED, {}),
    # Quantized, calibrated and checked in a process of its own.
    "int8": (
        "classifier", "albert", LABELLED | {"max_seq_length": 24, "metrics": {"accuracy": 0.5}},
        {"inputs": "text", "compute": "int8", "check": True, "calibration_text": "lines.txt",
         "warm_up_lengths": "16,64,128", "warm_up_signatures": "serving_default,classify,tokenize"}
    ),
    "regressor": ("regressor", "albert", {"inputs": ["sentence1", "sentence2"]}, {"inputs": "text"}),
    "spans": (
        "spans", "low rank", None,
        {"inputs": "text", "max_seq_length": 24, "doc_stride": 5, "merge_low_rank": True}
    ),
    "pretrainer": ("pretrainer", "sentencepiece", None, {"inputs": "text"}),
    "xlnet": ("classifier", "remembering xlnet", None, {"max_seq_length": 24})
}  # fmt: skip


@pytest.fixture(scope="session")
def tokenizer():
    letters = [*string.ascii_lowercase, *string.digits, *",.?()'-_é"]
    return wordpiece(*WORDS.split(), *letters, *(f"##{one}" for one in letters))


@pytest.fixture(scope="session")
def roberta_tokenizer():
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("a", "t"), ("c", "at")]
    ids = {piece: number for number, piece in enumerate([*special, *byte_characters(), *map("".join, merges)])}
    added = tuple(AddedToken(name, ids[name], True, lstrip=name == "<mask>") for name in special)
    roles = dict(zip(("cls", "pad", "sep", "unk", "mask"), special))
    return ByteBPETokenizer(as_tokenizer_json(ByteBPERules(ids, merges, added, roles)))


@pytest.fixture(scope="session")
def tokenizer_of(tokenizer, roberta_tokenizer, tmp_path_factory):
    """tokenizer_of(family): a tiny vocabulary as that family has it."""

    @functools.cache
    def make(family):
        if family == "sentencepiece":
            path = tmp_path_factory.mktemp("pieces") / "spm.model"
            path.write_bytes(train_tokenizer(string.__doc__.splitlines() + [WORDS] * 9, 120, hard_vocab_limit=False))
            return load_tokenizer(path)
        if family == "roberta":
            return roberta_tokenizer
        return tokenizer.with_cls_last(True) if family.endswith("xlnet") else tokenizer

    return make


@pytest.fixture(scope="session")
def make_model(tokenizer_of):
    """A model with the named head, its weights large enough that every token matters."""

    def make(head, seed=0, family="albert", **changes):
        # Initializers draw their seeds here. keras.utils.set_random_seed would empty TensorFlow's caches of kernels,
        # and with them what SentencePiece's ops, run eagerly, hold of vocabularies.
        random.seed(seed)
        numbers, changes = np.random.default_rng(seed), FAMILIES[family] | changes
        config = AlbertConfig(
            vocab_size=tokenizer_of(family).vocab_size, embedding_size=8, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32, max_position_embeddings=48, initializer_range=0.3
        ).replace(**changes)  # fmt: skip
        model = HEADS[head](AlbertEncoder(config))
        for variable in model.trainable_variables:
            if variable.name in ("bias", "output_bias", "beta", "b"):
                variable.assign(numbers.normal(0, 0.3, variable.shape))
        return model

    return make


def write_export(folder, model, tokenizer, task, **settings):
    """Exports a folder with a model, its vocabulary and its task; gives the version's path."""
    save_keras(model, folder / "model.keras")
    tokenizer.save(folder)
    files.write_json(folder / "task.json", task or {})
    return export(ExportSettings(str(folder), str(folder / "exported"), **settings))


@pytest.fixture(scope="session")
def export_model(make_model, tokenizer, tmp_path_factory):
    """export_model(head or model, task=None, **settings): a model folder, exported; gives the version's path."""

    def make(head, task=None, **settings):
        model = make_model(head) if isinstance(head, str) else head
        return write_export(tmp_path_factory.mktemp("model"), model, tokenizer, task, **settings)

    return make


@pytest.fixture(scope="session")
def exported(make_model, tokenizer_of, made_once):
    """exported(name): the path of that version of EXPORTS, written once for all workers; not to be changed."""

    def make(name):
        head, family, task, settings = EXPORTS[name]

        def fill(folder):
            (folder / "lines.txt").write_text("the cat sat\n\nparis is the capital of france\n")
            lines = {key: str(folder / settings[key]) for key in settings.keys() & {"calibration_text"}}
            model, tokenizer = make_model(head, family=family), tokenizer_of(family)
            write_export(folder, model, tokenizer, task, **{"warm_up_lengths": ""} | settings | lines)

        return made_once(f"exported-{name}", fill) / "exported" / "1"

    return make


@pytest.fixture(scope="session")
def lite_version(make_model, tokenizer_of, made_once):
    """lite_version(head, task, inputs="text"): the path of a LiteRT version, written once; not to be changed."""

    def make(head, task, inputs="text"):
        def fill(folder):
            settings = {"engine": "litert", "inputs": inputs, "max_seq_length": 40, "doc_stride": 5}
            write_export(folder, make_model(head), tokenizer_of("albert"), task, **settings)

        name = hashlib.sha256(repr((head, task, inputs)).encode()).hexdigest()[:16]
        return made_once(f"lite-{name}", fill) / "exported" / "1"

    return make


class Served:
    """A servable's signatures as functions of numpy arrays; as a server calls them, but where functions run eagerly."""

    def __init__(self, servable):
        self.exportable = servable
        self.signatures = servable.signatures()
        self._functions = {}

    def __call__(self, name="serving_default", /, **inputs):
        signature = self.signatures[name]
        tensors = {key: tf.constant(inputs[key], spec.dtype) for key, spec in signature.inputs.items()}
        if tf.config.functions_run_eagerly():
            answers = signature.function(**tensors)
        else:
            if name not in self._functions:
                self._functions[name] = signature.concrete()
            answers = self._functions[name](**tensors)
        return {key: value.numpy() for key, value in answers.items()}


@pytest.fixture(scope="session")
def serve(make_model, tokenizer_of):
    """serve(head or model, text=bool, family=name, **options) gives (model, Served)."""
    made = {}

    def make(head, text=False, family="albert", **options):
        key = (head if isinstance(head, str) else id(head), text, family, repr(options))
        if key not in made:
            model = make_model(head, family=family) if isinstance(head, str) else head
            options = {"max_seq_length": 48, "tokenizer": tokenizer_of(family) if text else None} | options
            made[key] = model, Served(make_exportable(model, ExportOptions(**options)))
        return made[key]

    return make


@pytest.fixture(scope="session")
def functions_of(serve):
    """functions_of(name): Served of what that version of EXPORTS was made of."""

    def make(name):
        head, family, task, settings = EXPORTS[name]
        options = {key: settings[key] for key in settings.keys() & {"max_seq_length", "doc_stride"}}
        return serve(head, settings.get("inputs") == "text", family, task=task or {}, **options)[1]

    return make


def example(**features):
    """A tf.Example of texts and lists of integers."""
    example = tf.train.Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        else:
            feature.int64_list.value.extend(value)
    return example.SerializeToString()


def assert_close(found, expected, rows=slice(None), atol=2e-5):
    """Arrays, or dicts of them, are equal up to rounding.

    Of dicts every expected output is found; where a batch is longer or fuller than a request alone, what lies beyond is
    not compared.
    """
    if not isinstance(expected, dict):
        np.testing.assert_allclose(np.maximum(found, -1e9), np.maximum(expected, -1e9), atol=atol)
        return
    assert expected and expected.keys() <= found.keys()
    for name, values in expected.items():
        answers = found[name][rows]
        assert len(answers) == len(values), name
        answers = answers[tuple(map(slice, values.shape))]
        if values.dtype.kind == "f":
            assert_close(answers, values, atol=atol)
        else:
            assert answers.tolist() == values.tolist(), name
