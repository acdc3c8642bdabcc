"""Configurations: published files as they are, wrong values named, every parameter count to the unit."""

import dataclasses
import json
import re

import hypothesis
import hypothesis.strategies as st
import pytest

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.analysis.cost import flops, parameters
from albert_tf.config.reading import NAMED, OTHER_NAMES
from tests.albert_tf.depth_cases import CONFIGS
from tests.albert_tf.tiny import small, table
from tests.refusals import refused

# Files as published: google-research/albert's and /bert's, and what transformers adds.
GOOGLE = json.loads("""{
    "vocab_size": 21128, "embedding_size": 128, "hidden_size": 384, "num_hidden_layers": 6, "num_hidden_groups": 1,
    "num_attention_heads": 12, "intermediate_size": 1536, "inner_group_num": 1, "hidden_act": "gelu",
    "down_scale_factor": 1, "gap_size": 0, "num_memory_blocks": 0, "net_structure_type": 0, "layers_to_keep": []
}""")
_FIELDS = [field.name for field in dataclasses.fields(AlbertConfig)]
BERT = json.loads("""{
    "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.02
}""")
ROBERTA = json.loads("""{
    "vocab_size": 50265, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "hidden_act": "gelu", "max_position_embeddings": 514, "type_vocab_size": 1,
    "initializer_range": 0.02, "model_type": "roberta", "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "layer_norm_eps": 1e-05
}""")
# What transformers 4 writes of PretrainedConfig, wherever it differs from the model's own defaults or was set.
BASE_CLASS = json.loads("""{
    "return_dict": true, "output_hidden_states": false, "output_attentions": false, "torchscript": false,
    "torch_dtype": "float32", "use_bfloat16": false, "tf_legacy_loss": false, "pruned_heads": {}, "prefix": null,
    "tie_word_embeddings": true, "chunk_size_feed_forward": 0, "is_encoder_decoder": false, "is_decoder": false,
    "cross_attention_hidden_size": null, "add_cross_attention": false, "tie_encoder_decoder": false,
    "max_length": 20, "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
    "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0,
    "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": null, "num_return_sequences": 1, "output_scores": false, "return_dict_in_generate": false,
    "forced_bos_token_id": null, "forced_eos_token_id": null, "remove_invalid_values": false,
    "exponential_decay_length_penalty": null, "suppress_tokens": null, "begin_suppress_tokens": null,
    "architectures": ["BertModel"], "model_type": "bert", "_name_or_path": "x", "finetuning_task": null,
    "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
    "tokenizer_class": null, "bos_token_id": null, "pad_token_id": 0,
    "eos_token_id": null, "sep_token_id": null, "decoder_start_token_id": null, "task_specific_params": null,
    "problem_type": null, "transformers_version": "4.40.0", "use_cache": true, "_attn_implementation_autoset": true,
    "position_embedding_type": "absolute", "classifier_dropout": null,
    "sentence_transformers": {"version": "3.0.0"}, "sbert_ce_default_activation_function": "torch.nn.Sigmoid"
}""")
XLNET = {"d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24, "ff_activation": "gelu"}
BRIGHTMART = {key: value for key, value in GOOGLE.items() if key in BERT or key == "embedding_size"}
BRIGHTMART |= {"directionality": "bidi", "pooler_type": "first_token_transform"}
# Without its embedding_size, which is transformers' default.
DEFAULT_SIZE = {key: value for key, value in GOOGLE.items() if key in BERT} | {"model_type": "albert"}


def without(values, lost):
    return {key: value for key, value in values.items() if key != lost}


@pytest.mark.parametrize(
    "values, expected",
    [
        (GOOGLE, dict(vars(AlbertConfig.named("albert_small_zh_google")))),
        (BERT, dict(sharing="none", embedding_size=384, is_projected=False, hidden_act="gelu")),
        (
            GOOGLE | {"model_type": "albert", "hidden_act": "gelu_new"},
            dict(sharing="all", hidden_act="gelu", always_project=False),
        ),
        (GOOGLE | {"model_type": "albert", "embedding_size": 384}, dict(is_projected=True)),
        (DEFAULT_SIZE, dict(sharing="all", embedding_size=128)),
        # Positions are counted behind the padding.
        (ROBERTA, dict(sharing="none", is_projected=False, position_offset=2, max_seq_length=512, layer_norm_eps=1e-5)),
        (without(ROBERTA, "pad_token_id"), dict(position_offset=2, hidden_act="gelu_erf")),
        (ROBERTA | {"pad_token_id": 0, "model_type": "xlm-roberta"}, dict(position_offset=1)),
        (BRIGHTMART, dict(sharing="all", factorization="word")),
        # Every key of transformers' base class is known.
        (
            BERT | BASE_CLASS,
            vars(AlbertConfig.from_dict(BERT | {"model_type": "bert"})) | dict(sharing="none", hidden_act="gelu_erf"),
        ),
        (XLNET | {"n_token": 30, "d_head": 4, "untie_r": True}, dict(hidden_act="gelu", embedding_size=16)),
        (XLNET | {"vocab_size": 30, "model_type": "xlnet"}, dict(hidden_act="gelu_erf")),
        (AlbertConfig.named("xlnet_base").to_dict(), dict(hidden_act="gelu", type_vocab_size=4)),
    ],
)
def test_published_files_are_read_as_they_are(values, expected):
    config = AlbertConfig.from_dict(values)
    assert {name: getattr(config, name) for name in expected} == expected
    assert AlbertConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("name", [*NAMED, *OTHER_NAMES])
def test_named_configurations_survive_json(name, tmp_path):
    config = AlbertConfig.named(name)
    config.to_json(tmp_path / "config.json")
    assert AlbertConfig.from_json(tmp_path / "config.json") == config
    assert ("position_offset" in config.to_dict()) == name.startswith(("roberta", "mpnet"))


def test_extensions_that_are_not_asked_for_are_not_written():
    assert list(AlbertConfig().to_dict()) == _FIELDS[: _FIELDS.index("position_offset")]
    assert AlbertConfig().unpublished == []
    looped = AlbertConfig(depth_plan="1+1x10+1")
    assert looped.unpublished == ["depth_plan"] and looped.to_dict()["depth_plan"] == "1+1x10+1"
    assert AlbertConfig.from_dict(json.loads(looped.to_json())) == looped


@pytest.mark.parametrize(
    "change, message",
    table("""
        {"hidden_size": 770}            | hidden_size 770 is not a multiple of num_attention_heads 12
        {"num_hidden_groups": 13}       | num_hidden_groups 13 is over num_hidden_layers 12
        {"num_hidden_layers": 0}        | num_hidden_layers must be a whole number of at least 1, in 32 bits, not 0
        {"vocab_size": 2.5}             | vocab_size must be a whole number of at least 1, in 32 bits, not 2.5
        {"vocab_size": "30000"}         | vocab_size must be a number, not '30000'
        {"hidden_dropout_prob": 1.0}    | hidden_dropout_prob must be a probability below 1, not 1.0
        {"num_hidden_layers": 2.0}      | num_hidden_layers must be a whole number of at least 1, in 32 bits, not 2.0
        {"hidden_size": Infinity}       | hidden_size must be a whole number of at least 1, in 32 bits, not inf
        {"hidden_size": NaN}            | hidden_size must be a whole number of at least 1, in 32 bits, not nan
        {"hidden_dropout_prob": NaN}    | hidden_dropout_prob must be a probability below 1, not nan
        {"layer_norm_eps": -1e-12}      | layer_norm_eps must be finite and not negative
        {"layer_norm_eps": Infinity}    | layer_norm_eps must be finite and not negative, not inf
        {"initializer_range": NaN}      | initializer_range must be finite and not negative, not nan
        {"hidden_act": ["gelu"]}        | hidden_act must be a str, not ['gelu']
        {"hidden_act": "gleu"}          | hidden_act 'gleu' is none of gelu
        {"sharing": "some"}             | sharing 'some' is none of all
        {"always_project": 1}           | always_project must be a bool, not 1
        {"depth_plan": "1+1x4+1"}       | depth_plan '1+1x4+1' runs 6 blocks, num_hidden_layers is 12; the two must
        {"hidden_size": 3221225472}     | hidden_size must be a whole number of at least 1, in 32 bits, not 3221225472
        {"num_hidden_layers": 5000}     | num_hidden_layers 5000 with inner_group_num 1 runs 5000 blocks; at most 4096
        {"depth_lora_rank": 3073}       | depth_lora_rank 3073 is over the blocks' width 3072
        {"depth_plan": "1+x11"}         | depth_plan '1+x11': 'x11' is no part of a plan; write '1+1x10+1'
        {"depth_plan": "2x6", "inner_group_num": 2}  | depth_plan takes the place of num_hidden_groups and inner
        {"depth_plan": "2x6", "sharing": "none"}     | sharing 'none' shares none; leave one out
        {"position_offset": 512}        | position_offset 512 leaves no row of max_position_embeddings 512
        {"position_offset": -1}         | position_offset must be a whole number of at least 0
        {"hiden_size": 768}             | unknown configuration key 'hiden_size'; did you mean 'hidden_size'?
    """),
)
def test_wrong_values_are_named(change, message, tmp_path):
    change = json.loads(change)
    with refused(re.escape(message)):
        AlbertConfig().replace(**change)
    file = tmp_path / "albert_config.json"
    for model_type in ({}, {"model_type": "albert"}):
        file.write_text(json.dumps(AlbertConfig().to_dict() | change | model_type))
        with refused(str(file)):
            AlbertConfig.from_json(file)


def test_absent_and_broken_files_are_refused(tmp_path):
    for name in ("albert_bass", "albert_bas", "albert-base"):
        with refused(f"no configuration is called '{name}'; did you mean 'albert_base_v2'"):
            AlbertConfig.named(name)
    file = tmp_path / "config.json"
    with refused("cannot read"):
        AlbertConfig.from_json(file)
    broken = {"{": "is not JSON", "[1]": "holds no JSON object"}
    # A damaged file never becomes another model.
    for lost in ("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        broken |= {json.dumps(without(values, lost)): f"lacks .*{lost}" for values in ({}, BERT, GOOGLE)}
    for text, message in broken.items():
        file.write_text(text)
        with refused(f"config.json' {message}"):
            AlbertConfig.from_json(file)


# With the pooler; without it; with the heads of pre-training.
@pytest.mark.parametrize(
    "name, changes, count, others",
    table("""
        albert_base_v2         | {}                           |  11683584 | 11092992 11813810
        albert_large_v2        | {}                           |  17683968 | 16634368 17847474
        albert_xlarge_v2       | {}                           |  58724864 | 54528512 59021490
        albert_xxlarge_v2      | {}                           | 222595584 | 205814272 223158450
        albert_base_v2         | {"embedding_size": 64}       |   9681408 |
        albert_base_v2         | {"embedding_size": 256}      |  15687936 |
        albert_base_v2         | {"embedding_size": 768}      |  31114752 |
        albert_base_v2         | {"sharing": "none", "embedding_size": 64}       |  87648000 |
        albert_base_v2         | {"sharing": "none"}                             |  89650176 |
        albert_base_v2         | {"sharing": "none", "embedding_size": 256}      |  93654528 |
        albert_base_v2         | {"sharing": "none", "embedding_size": 768}      | 109081344 |
        albert_base_v2         | {"sharing": "attention"}                        |  63647232 |
        albert_base_v2         | {"sharing": "ffn"}                              |  37686528 |
        albert_base_v2         | {"sharing": "attention", "embedding_size": 768} |  83078400 |
        albert_base_v2         | {"sharing": "ffn", "embedding_size": 768}       |  57117696 |
        bert_base              | {"vocab_size": 30000}        | 109081344 | 108490752
        bert_large             | {"vocab_size": 30000}        | 334607360 | 333557760
        albert_tiny_zh         | {}                           |   4175152 |
        albert_tiny_zh_google  | {}                           |   4080520 |
        albert_small_zh_google | {}                           |   4742272 |
        albert_base_zh         | {}                           |  10547968 |
        roberta_base           | {}                           | 124645632 |
        xlnet_base             | {}                           | 117308928 | 116718336
        xlnet_large            | {}                           | 361318400 | 360268800
        roberta_large          | {}                           | 355359744 |
    """),
)
def test_parameter_counts_equal_the_published_ones(name, changes, count, others):
    counted = parameters(AlbertConfig.named(name).replace(**json.loads(changes)))
    assert counted.encoder + counted.pooler == int(count)
    others = [int(other) for other in others.split()]
    assert [counted.encoder, counted.total][: len(others)] == others


@pytest.mark.parametrize("name", ["learned signal", "act", "everything", "low rank of one half", "modern block"])
def test_the_formula_counts_extensions(name):
    config = small(**{"num_hidden_layers": 4} | CONFIGS[name])
    assert parameters(config).encoder + parameters(config).pooler == AlbertEncoder(config).count_params()
    # A signal adds nothing that is multiplied.
    plain = small(num_hidden_layers=config.num_hidden_layers)
    assert (flops(config, 5) > flops(plain, 5)) == (name != "learned signal")


@hypothesis.given(
    layers=st.integers(1, 5), groups=st.integers(1, 5), inner=st.integers(1, 2), size=st.sampled_from([8, 16]),
    sharing=st.sampled_from(["all", "attention", "ffn", "none"]), factorization=st.sampled_from(["all", "word"]),
    always_project=st.booleans()
)  # fmt: skip
# Each example builds two models.
@hypothesis.settings(max_examples=5)
def test_the_formula_counts_what_keras_counts_and_any_configuration_round_trips(layers, groups, inner, size, **fields):
    sizes = dict(num_hidden_layers=layers, num_hidden_groups=min(groups, layers), inner_group_num=inner)
    config = small(**sizes, embedding_size=size, **fields)
    assert AlbertConfig.from_dict(json.loads(config.to_json())) == config
    counted, encoder = parameters(config), AlbertEncoder(config)
    assert counted.encoder + counted.pooler == encoder.count_params()
    assert counted.total == AlbertPretrainer(encoder).count_params()
