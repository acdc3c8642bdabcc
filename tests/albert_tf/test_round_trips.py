"""The contract of files: a model of any kind, written in a format that has a form for it, is read as it was."""

import json
from functools import partial

import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from albert_tf import AlbertEncoder, AlbertPretrainer, XlnetPretrainer
from albert_tf.checkpoints import formats, save_huggingface
from albert_tf.checkpoints.resizing import factorize_embeddings
from albert_tf.checkpoints.variables import encoder_of
from tests.albert_tf.depth_cases import filled
from tests.albert_tf.tiny import KINDS, assert_same_answers, assert_same_weights, batch, small, table, values_of
from tests.refusals import refused

TF1, HF, KERAS = "official", "huggingface", "keras"
XLNET = json.loads("""{
    "embedding_size": 16, "sharing": "none", "position_type": "relative", "clamp_length": 5, "memory_length": 4,
    "reuse_length": 3, "type_vocab_size": 4, "max_position_embeddings": 512
}""")
ROBERTA = json.loads("""{
    "embedding_size": 16, "sharing": "none", "position_offset": 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5
}""")
MPNET = json.loads("""{
    "embedding_size": 16, "sharing": "none", "position_offset": 2, "type_vocab_size": 1, "hidden_act": "gelu_erf",
    "relative_attention_num_buckets": 32
}""")
CONFIGS = json.loads("""{
    "plain": {},
    "groups": {"num_hidden_layers": 4, "num_hidden_groups": 3, "inner_group_num": 2},
    "inner groups": {"num_hidden_groups": 2, "inner_group_num": 2},
    "square": {"embedding_size": 16},
    "projected": {"embedding_size": 16, "always_project": true},
    "relu": {"embedding_size": 16, "hidden_act": "relu"},
    "erf": {"hidden_act": "gelu_erf"},
    "unshared": {"sharing": "none"},
    "shared attention": {"sharing": "attention"},
    "shared ffn": {"sharing": "ffn"},
    "word": {"factorization": "word"},
    "word groups": {"factorization": "word", "num_hidden_groups": 2},
    "plan": {"depth_plan": "1x2", "num_hidden_layers": 2},
    "BERT": {"embedding_size": 16, "sharing": "none"},
    "extended": {"num_hidden_layers": 2, "step_signal": "learned", "depth_lora_rank": 2, "norm_position": "pre",
        "norm": "rms_norm", "feed_forward": "glu", "position_type": "rotary", "use_bias": false}
}""") | {
    "RoBERTa": ROBERTA | {"hidden_act": "gelu_erf"},
    "tanh RoBERTa": ROBERTA,
    "shared RoBERTa": ROBERTA | {"hidden_act": "gelu_erf", "sharing": "all"},
    "XLNet": XLNET,
    "shared MPNet": MPNET | {"sharing": "all"},
    "factorised MPNet": MPNET | {"embedding_size": 8},
    "MPNet of 16": MPNET | {"relative_attention_num_buckets": 16},
    "MPNet from 0": MPNET | {"position_offset": 0},
    "shared XLNet": XLNET | {"sharing": "all"},
    "factorised XLNet": XLNET | {"embedding_size": 8},
    "RMS XLNet": XLNET | {"norm": "rms_norm"},
    "erf XLNet": XLNET | {"hidden_act": "gelu_erf"},
}
# A kind of model, its configuration, the formats it passes through, transformers' class and a tensor of its head
# there. Keras files of every head are in test_models.py, with their optimizers.
PASSES = table("""
    pretrainer             | plain            | huggingface          | AlbertForPreTraining sop_classifier.classifier.weight
    pretrainer             | groups           | official             |
    pretrainer             | relu             | huggingface          |
    pretrainer             | unshared         | official huggingface |
    pretrainer             | BERT             | official             |
    pretrainer             | shared attention | keras                |
    pretrainer             | shared ffn       | official             |
    pretrainer             | word             | official             |
    pretrainer of words    | RoBERTa          | huggingface          |
    pretrainer of words    | plain            | huggingface          | AlbertForMaskedLM predictions.bias
    xlnet                  | XLNet            | official huggingface | XLNetLMHeadModel lm_loss.bias
    encoder                | plain            | huggingface          | AlbertModel pooler.weight
    encoder                | BERT             | huggingface          |
    encoder                | RoBERTa          | huggingface          |
    encoder without pooler | XLNet            | official huggingface | XLNetModel mask_emb
    classifier             | plain            | huggingface          | AlbertForSequenceClassification classifier.weight
    classifier             | XLNet            | huggingface          | XLNetForSequenceClassification logits_proj.weight
    regressor              | plain            | huggingface          | AlbertForSequenceClassification classifier.weight
    regressor              | RoBERTa          | huggingface          | RobertaForSequenceClassification classifier.out_proj.weight
    tagger                 | plain            | huggingface          | AlbertForTokenClassification classifier.weight
    tagger                 | XLNet            | huggingface          | XLNetForTokenClassification classifier.weight
    choices                | plain            | huggingface          | AlbertForMultipleChoice classifier.weight
    choices                | XLNet            | huggingface          | XLNetForMultipleChoice sequence_summary.summary.weight logits_proj.weight
    spans                  | plain            | official huggingface | AlbertForQuestionAnswering qa_outputs.weight
    spans                  | XLNet            | huggingface          | XLNetForQuestionAnsweringSimple qa_outputs.weight
    joint spans            | plain            | official             |
    joint spans            | XLNet            | huggingface          | XLNetForQuestionAnswering end_logits.LayerNorm.weight
    embedder of [CLS]      | plain            | keras                |
""")  # noqa: E501
# The same tensors, or the same configuration, pass in another row.
SLOW = {
    ("pretrainer", "relu"), ("pretrainer", "word"), ("encoder", "BERT"), ("encoder", "RoBERTa")
}  # fmt: skip
CASES = [
    pytest.param(kind, config, form, published, marks=[pytest.mark.slow] * ((kind, config) in SLOW))
    for kind, config, forms, published in PASSES
    for form in forms.split()
]
MAKERS = KINDS | {
    "pretrainer of words": partial(AlbertPretrainer, pair_task=None),
    "encoder without pooler": partial(AlbertEncoder, pooler=False),
    "xlnet": XlnetPretrainer,
}


def written(model, form, folder):
    path = folder / "model.keras" if form == KERAS else folder / "there"
    formats.save(model, path, form)
    return path


@pytest.mark.parametrize("kind, name, form, published", CASES)
def test_a_model_is_read_as_it_was_written(kind, name, form, published, tmp_path):
    # Names of blocks are those of the models without a head for a task.
    layers = {} if kind.startswith(("encoder", "pretrainer", "xlnet")) else {"num_hidden_layers": 1}
    config = small(**layers | CONFIGS[name])
    model = filled(MAKERS[kind](config))
    path = written(model, form, tmp_path)
    again = formats.load(path)
    assert type(again) is type(model)
    found = encoder_of(again).config
    if found.always_project:
        # transformers' ALBERT projects always: an identity was written.
        assert form == HF and "embeddings/projection/kernel" not in values_of(model)
        assert_same_answers(again, model)
        return
    assert_same_weights(again, model)
    if not (form == TF1 and name == "XLNet"):
        # XLNet's own configuration says nothing of memory and lengths.
        assert_same_answers(again, model, batch(kind))
        # transformers' ALBERT shares no block by a group for each layer.
        expected = config.replace(sharing="all") if (name, form) == ("unshared", HF) else config
        assert found.replace(num_hidden_groups=config.num_hidden_groups) == expected
    if form == KERAS:
        assert again.get_config() == model.get_config() == type(model).from_config(model.get_config()).get_config()
    if form == HF and published:
        architecture, *tensors = published.split()
        assert json.loads((path / "config.json").read_text())["architectures"] == [architecture]
        assert {*tensors} <= load_file(path / "model.safetensors").keys()


def test_official_files_are_tensorflows_own(tmp_path):
    for name in ("plain", "unshared", "BERT"):
        formats.save(AlbertEncoder(small(**CONFIGS[name])), tmp_path / name, TF1)
    assert "bert/pooler/dense/kernel" in dict(tf.train.list_variables(str(tmp_path / "plain" / "model.ckpt-best")))
    assert (tmp_path / "BERT" / "bert_config.json").is_file()
    # The official code would build a group for each layer.
    values = json.loads((tmp_path / "unshared" / "albert_config.json").read_text())
    assert (values["hidden_size"], values["num_hidden_groups"]) == (16, 2)
    assert formats.load(tmp_path / "unshared").config.sharing == "none"


NO_FORM = table("""
    encoder     | shared attention | huggingface | transformers has no model with sharing 'attention'
    encoder     | shared ffn       | huggingface | transformers has no model with sharing 'ffn'
    encoder     | word             | huggingface | transformers has no model with factorization 'word'
    encoder     | word groups      | official    | only with one block for all layers
    encoder     | erf              | official    | gelu_erf
    encoder     | projected        | official    | no projection where embedding_size equals hidden_size
    encoder     | shared RoBERTa   | huggingface | no Roberta with shared blocks or factorised embeddings
    encoder     | tanh RoBERTa     | official    | the official code cannot hold a model with position_offset 2
    encoder     | shared MPNet     | huggingface | no MPNet with shared blocks
    encoder     | factorised MPNet | huggingface | or factorised embeddings; keep it as a .keras file
    encoder     | MPNet of 16      | huggingface | transformers has no MPNet with relative_attention_num_buckets 16;
    encoder     | MPNet from 0     | huggingface | no MPNet with position_offset 0
    encoder     | shared XLNet     | huggingface | no XLNet with shared blocks or factorised embeddings
    encoder     | factorised XLNet | official    | no XLNet with shared blocks or factorised embeddings
    encoder     | RMS XLNet        | huggingface | cannot hold a model with norm 'rms_norm'
    encoder     | erf XLNet        | official    | hidden_act 'gelu_erf'; its gelu is the tanh form
    encoder     | plan             | huggingface | transformers cannot hold a model with depth_plan '1x2'
    encoder     | extended         | official    | norm_position 'pre', norm 'rms_norm', feed_forward 'glu', use_bias False, step_signal 'learned', depth_lora_rank 2, position_type 'rotary'; keep it as
    encoder     | extended         | huggingface | cannot hold a model with norm 'rms_norm', step_signal 'learned', depth_lora_rank 2; keep it as
    joint spans | plain            | huggingface | the target format has no place for .*start/kernel
    pretrainer  | RoBERTa          | huggingface | no place for pair/
    xlnet       | XLNet            | keras       | must end in .keras
""")  # noqa: E501


@pytest.mark.parametrize("kind, name, form, message", NO_FORM)
def test_what_a_format_has_no_form_for_is_refused_and_nothing_is_written(kind, name, form, message, tmp_path):
    changes = CONFIGS[name]
    kind = "encoder without pooler" if kind == "encoder" and "XLNet" in name else kind
    config = small(**{"num_hidden_layers": changes.get("num_hidden_groups", 1)} | changes)
    with refused(message):
        formats.save(MAKERS[kind](config), tmp_path / "there", form)
    assert not list(tmp_path.iterdir())


def test_encoders_alone_go_where_heads_have_no_form(tmp_path, caplog):
    model = filled(KINDS["embedder"](small()))
    assert_same_weights(formats.load(written(model, HF, tmp_path)), model.encoder)
    assert "how texts are pooled has no form there" in caplog.text
    with refused("transformers has no class for an AlbertSentenceEmbedder; give its encoder"):
        save_huggingface(model, tmp_path / "none")
    with refused("not factorized afterwards"):
        factorize_embeddings(XlnetPretrainer(small(**XLNET)), 4)
