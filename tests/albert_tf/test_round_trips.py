"""The contract of files: a model of any kind, written in a format that has a form for it, is read as it was."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from albert_tf import AlbertEncoder, AlbertPretrainer, XlnetPretrainer
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.factorizing import factorize_embeddings
from albert_tf.checkpoints.variables import encoder_of
from tests.albert_tf.tiny import (
    KINDS,
    assert_same_answers,
    assert_same_weights,
    batch,
    randomise,
    small,
    values_of,
)
from tfrecords.base.errors import UserError

TF1, HF, HUB, KERAS = "official", "huggingface", "keras_hub", "keras"
SQUARE = {"embedding_size": 16}
UNSHARED = {"sharing": "none"}
BERT = SQUARE | UNSHARED
ROBERTA = BERT | {"position_offset": 2, "type_vocab_size": 1, "hidden_act": "gelu_erf", "layer_norm_eps": 1e-5}
XLNET = BERT | {"position_type": "relative", "clamp_length": 5, "memory_length": 4, "reuse_length": 3}
XLNET |= {"type_vocab_size": 4, "max_position_embeddings": 512}
GROUPS = {"num_hidden_layers": 4, "num_hidden_groups": 3, "inner_group_num": 2}
# A kind of model, what its configuration differs in, and the formats it passes through. Keras files of every head are
# in test_models.py, with their optimizers.
PASSES = [
    ("pretrainer", {}, (TF1, HF)),
    ("pretrainer", GROUPS, (TF1, HF)),
    ("pretrainer", SQUARE | {"hidden_act": "relu"}, (TF1, HF)),
    ("pretrainer", UNSHARED, (TF1, HF)),
    ("pretrainer", BERT, (TF1, HF)),
    ("pretrainer", {"sharing": "attention"}, (TF1, KERAS)),
    ("pretrainer", {"sharing": "ffn"}, (TF1,)),
    ("pretrainer", {"factorization": "word"}, (TF1,)),
    ("pretrainer of words", ROBERTA, (HF,)),
    ("pretrainer of words", {}, (HF,)),
    ("xlnet", XLNET, (TF1, HF)),
    ("encoder", {}, (TF1, HF, HUB)),
    ("encoder", {"inner_group_num": 2, "num_hidden_groups": 2}, (HUB,)),
    ("encoder", UNSHARED, (HUB,)),
    ("encoder", BERT, (HUB, HF)),
    ("encoder", SQUARE, (HUB,)),
    ("encoder", ROBERTA, (HF,)),
    ("encoder", GROUPS, (KERAS,)),
    ("encoder without pooler", XLNET, (TF1, HF)),
    ("classifier", {}, (TF1, HF)),
    ("classifier", XLNET, (HF,)),
    ("regressor", {}, (TF1, HF)),
    ("regressor", ROBERTA, (HF,)),
    ("tagger", {}, (TF1, HF)),
    ("tagger", XLNET, (HF,)),
    ("choices", {}, (HF,)),
    ("choices", XLNET, (HF,)),
    ("spans", {}, (TF1, HF)),
    ("spans", XLNET, (HF,)),
    ("joint spans", {}, (TF1,)),
    ("joint spans", XLNET, (HF,)),
    ("embedder of [CLS]", {}, (KERAS,)),
]
MAKERS = KINDS | {
    "pretrainer of words": lambda config: AlbertPretrainer(config, pair_task=None),
    "encoder without pooler": lambda config: AlbertEncoder(config, pooler=False),
    "xlnet": XlnetPretrainer,
}
CASES = [
    pytest.param(kind, changes, form, id=f"{kind}-{'-'.join(map(str, changes.values()))}-{form}")
    for kind, changes, forms in PASSES
    for form in forms
]
# transformers' class and the first tensor of each head, as its files have them.
PUBLISHED = {
    "pretrainer": ("AlbertForPreTraining", "sop_classifier.classifier.weight"),
    "pretrainer of words": ("AlbertForMaskedLM", "predictions.bias"),
    "encoder": ("AlbertModel", "pooler.weight"),
    "classifier": ("AlbertForSequenceClassification", "classifier.weight"),
    "regressor": ("AlbertForSequenceClassification", "classifier.weight"),
    "tagger": ("AlbertForTokenClassification", "classifier.weight"),
    "choices": ("AlbertForMultipleChoice", "classifier.weight"),
    "spans": ("AlbertForQuestionAnswering", "qa_outputs.weight"),
}
PUBLISHED_XLNET = {
    "xlnet": ("XLNetLMHeadModel", "lm_loss.bias"),
    "encoder without pooler": ("XLNetModel", "mask_emb"),
    "classifier": ("XLNetForSequenceClassification", "logits_proj.weight"),
    "tagger": ("XLNetForTokenClassification", "classifier.weight"),
    "choices": ("XLNetForMultipleChoice", "sequence_summary.summary.weight"),
    "spans": ("XLNetForQuestionAnsweringSimple", "qa_outputs.weight"),
    "joint spans": ("XLNetForQuestionAnswering", "end_logits.LayerNorm.weight"),
}


def written(model, form, folder):
    path = folder / "model.keras" if form == KERAS else folder / "there"
    formats.save(model, path, form)
    return path


@pytest.mark.parametrize(("kind", "changes", "form"), CASES)
def test_a_model_is_read_as_it_was_written(kind, changes, form, tmp_path):
    # Names of blocks are those of the models without a head for a task.
    layers = {} if kind.startswith(("encoder", "pretrainer", "xlnet")) else {"num_hidden_layers": 1}
    config = small(**layers | changes)
    model = randomise(MAKERS[kind](config))
    path = written(model, form, tmp_path)
    again = formats.load(path)
    assert type(again) is type(model)
    found = encoder_of(again).config
    if found.always_project:
        # transformers' ALBERT and keras-hub's project always: an identity was written.
        assert form in (HF, HUB) and "embeddings/projection/kernel" not in values_of(model)
        assert_same_answers(again, model)
        return
    assert_same_weights(again, model)
    if not (form == TF1 and changes == XLNET):
        # XLNet's own configuration says nothing of memory and lengths.
        assert_same_answers(again, model, batch(kind))
        # transformers' ALBERT shares no block by a group for each layer.
        expected = config.replace(sharing="all") if (kind, changes, form) == ("pretrainer", UNSHARED, HF) else config
        assert form == HUB or found.replace(num_hidden_groups=config.num_hidden_groups) == expected
    if form == KERAS:
        assert again.get_config() == model.get_config() == type(model).from_config(model.get_config()).get_config()
    published = PUBLISHED if not changes else PUBLISHED_XLNET if changes == XLNET else {}
    if form == HF and kind in published:
        architecture, tensor = published[kind]
        assert json.loads((path / "config.json").read_text())["architectures"] == [architecture]
        assert tensor in load_file(path / "model.safetensors")


def test_official_files_are_tensorflows_own(tmp_path):
    for name, changes in (("shared", {}), ("unshared", UNSHARED), ("bert", BERT)):
        formats.save(AlbertEncoder(small(**changes)), tmp_path / name, TF1)
    assert "bert/pooler/dense/kernel" in dict(tf.train.list_variables(str(tmp_path / "shared" / "model.ckpt-best")))
    assert (tmp_path / "bert" / "bert_config.json").is_file()
    # The official code would build a group for each layer.
    values = json.loads((tmp_path / "unshared" / "albert_config.json").read_text())
    assert (values["hidden_size"], values["num_hidden_groups"]) == (16, 2)
    assert formats.load(tmp_path / "unshared").config.sharing == "none"


def test_a_keras_file_keeps_how_steps_are_run(tmp_path):
    formats.save(AlbertEncoder(small(), walk="loop", pooler=False), tmp_path / "model.keras", KERAS)
    again = formats.load(tmp_path)
    assert (again.walk, again.pooler) == ("loop", None)


def test_a_model_on_disk_fills_another(tmp_path):
    for form, load in ((TF1, formats.load_official), (HF, formats.load_huggingface), (HUB, formats.load_keras_hub)):
        encoder = randomise(AlbertEncoder(small()))
        other = AlbertEncoder(small())
        assert load(written(encoder, form, tmp_path / form), other) is other
        assert_same_weights(other, encoder)


NO_FORM = [
    ({"sharing": "attention"}, HF, "transformers has no model with sharing 'attention'"),
    ({"sharing": "ffn"}, HF, "transformers has no model with sharing 'ffn'"),
    ({"factorization": "word"}, HF, "transformers has no model with factorization 'word'"),
    ({"factorization": "word", "num_hidden_groups": 2}, TF1, "only with one block for all layers"),
    ({"sharing": "attention"}, HUB, "keras-hub has only"),
    ({"factorization": "word"}, HUB, "keras-hub has only"),
    ({"hidden_act": "relu"}, HUB, "keras-hub has only"),
    (GROUPS, HUB, "keras-hub needs num_hidden_layers 4 a multiple of 3 groups"),
    ({"hidden_act": "gelu_erf"}, TF1, "gelu_erf"),
    (SQUARE | {"always_project": True}, TF1, "no projection where embedding_size equals hidden_size"),
    (ROBERTA | {"sharing": "all"}, HF, "position_offset 2 has no form there"),
    (ROBERTA | {"hidden_act": "gelu"}, TF1, "the official code cannot hold a model with position_offset 2"),
    (ROBERTA | {"hidden_act": "gelu"}, HUB, "keras-hub cannot hold a model with position_offset 2"),
    (XLNET | {"sharing": "all"}, HF, "no XLNet with shared blocks or factorised embeddings"),
    (XLNET | {"embedding_size": 8}, TF1, "no XLNet with shared blocks or factorised embeddings"),
    (XLNET | {"norm": "rms_norm"}, HF, "cannot hold a model with norm 'rms_norm'"),
    (XLNET, HUB, "keras-hub cannot hold a model with position_type 'relative'"),
    (XLNET | {"hidden_act": "gelu_erf"}, TF1, "hidden_act 'gelu_erf'; its gelu is the tanh form"),
    ({"depth_plan": "1x2", "num_hidden_layers": 2}, HF, "transformers cannot hold a model with depth_plan '1x2'"),
]


@pytest.mark.parametrize(("changes", "form", "message"), NO_FORM)
def test_what_a_format_has_no_form_for_is_refused_and_nothing_is_written(changes, form, message, tmp_path):
    with pytest.raises(UserError, match=message):
        config = small(**{"num_hidden_layers": changes.get("num_hidden_groups", 1)} | changes)
        formats.save(AlbertEncoder(config, pooler="position_type" not in changes), tmp_path / "there", form)
    assert not list(tmp_path.iterdir())


HEADS_WITHOUT_FORM = [
    ("joint spans", {}, HF, "the target format has no place for .*start/kernel"),
    ("pretrainer", ROBERTA, HF, "no place for pair/"),
    ("xlnet", XLNET, KERAS, "must end in .keras"),
]


@pytest.mark.parametrize(("kind", "changes", "form", "message"), HEADS_WITHOUT_FORM)
def test_a_head_that_a_format_has_no_form_for_is_refused(kind, changes, form, message, tmp_path):
    with pytest.raises(UserError, match=message):
        formats.save(MAKERS[kind](small(**changes)), tmp_path / "there", form)
    assert not list(tmp_path.iterdir())


def test_encoders_alone_go_where_heads_have_no_form(tmp_path, caplog):
    model = randomise(KINDS["embedder"](small()))
    assert_same_weights(formats.load(written(model, HF, tmp_path)), model.encoder)
    assert "how texts are pooled has no form there" in caplog.text
    with pytest.raises(UserError, match="transformers has no class for an AlbertSentenceEmbedder; give its encoder"):
        formats.save_huggingface(model, tmp_path / "none")
    pretrained = randomise(AlbertPretrainer(small()))
    assert_same_weights(formats.load(written(pretrained, HUB, tmp_path / "hub")), pretrained.encoder)
    assert "a keras-hub backbone has no heads: masked_lm/" in caplog.text
    with pytest.raises(UserError, match="not factorised afterwards"):
        factorize_embeddings(XlnetPretrainer(small(**XLNET)), 4)


def test_names_of_classes_pass_through(tmp_path):
    model = KINDS["tagger"](small(), labels=["O", "B-PER", "I-PER"])
    for form in (HF, KERAS):
        path = written(model, form, tmp_path)
        assert formats.load(path).labels == ("O", "B-PER", "I-PER")
    values = json.loads((tmp_path / "there" / "config.json").read_text())
    assert values["label2id"] == {"O": 0, "B-PER": 1, "I-PER": 2} and values["id2label"]["1"] == "B-PER"
    assert keras.saving.load_model(path).get_config()["labels"] == ["O", "B-PER", "I-PER"]
    assert np.shape(formats.load(path)(batch())) == (4, 8, 3)
