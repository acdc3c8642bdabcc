"""Configurations: published files as they are, wrong values named, every parameter count to the unit."""

import dataclasses
import json
import math

import hypothesis
import hypothesis.strategies as st
import pytest

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.analysis.cost import flops, parameters
from albert_tf.published import NAMED, OTHER_NAMES
from tfrecords.base.errors import UserError

# Files as published: google-research/albert's and /bert's, and what transformers adds.
GOOGLE = json.loads("""{
    "vocab_size": 21128, "embedding_size": 128, "hidden_size": 384, "num_hidden_layers": 6, "num_hidden_groups": 1,
    "num_attention_heads": 12, "intermediate_size": 1536, "inner_group_num": 1, "hidden_act": "gelu",
    "down_scale_factor": 1, "gap_size": 0, "num_memory_blocks": 0, "net_structure_type": 0, "layers_to_keep": []
}""")
_FIELDS = [field.name for field in dataclasses.fields(AlbertConfig)]
# What came after the first configurations were written.
EXTENSIONS = set(_FIELDS[_FIELDS.index("position_offset") :])
BERT = json.loads("""{
    "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.02
}""")
HUGGINGFACE = {"transformers_version": "4.8.2", "pad_token_id": 0, "architectures": ["BertModel"], "_name_or_path": "x"}


def test_google_albert_file():
    config = AlbertConfig.from_dict(GOOGLE)
    assert (config.sharing, config.factorization, config.hidden_act) == ("all", "all", "gelu")
    assert config == AlbertConfig.named("albert_small_zh_google")


def test_google_bert_file_is_unshared_and_not_projected():
    config = AlbertConfig.from_dict(BERT)
    assert (config.sharing, config.embedding_size, config.is_projected) == ("none", 384, False)
    assert config.hidden_act == "gelu"


def test_huggingface_file_means_the_exact_gelu():
    config = AlbertConfig.from_dict(BERT | HUGGINGFACE | {"model_type": "bert"})
    assert (config.sharing, config.hidden_act) == ("none", "gelu_erf")
    new = AlbertConfig.from_dict(GOOGLE | {"model_type": "albert", "hidden_act": "gelu_new"})
    assert (new.sharing, new.hidden_act, new.always_project) == ("all", "gelu", False)
    square = AlbertConfig.from_dict(GOOGLE | {"model_type": "albert", "embedding_size": 384})
    assert square.is_projected


ROBERTA = json.loads("""{
    "vocab_size": 50265, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "hidden_act": "gelu", "max_position_embeddings": 514, "type_vocab_size": 1,
    "initializer_range": 0.02, "model_type": "roberta", "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "layer_norm_eps": 1e-05
}""")


def test_roberta_file_counts_positions_behind_the_padding():
    config = AlbertConfig.from_dict(ROBERTA)
    assert (config.sharing, config.is_projected, config.hidden_act) == ("none", False, "gelu_erf")
    assert (config.position_offset, config.max_seq_length, config.layer_norm_eps) == (2, 512, 1e-5)
    without_padding = {key: value for key, value in ROBERTA.items() if key != "pad_token_id"}
    assert AlbertConfig.from_dict(without_padding) == config == AlbertConfig.from_dict(config.to_dict())
    assert AlbertConfig.from_dict(ROBERTA | {"pad_token_id": 0, "model_type": "xlm-roberta"}).position_offset == 1
    with pytest.raises(UserError, match="position_offset 9 leaves no row of max_position_embeddings 9"):
        config.replace(position_offset=9, max_position_embeddings=9)
    with pytest.raises(UserError, match="position_offset must be a whole number of at least 0"):
        config.replace(position_offset=-1)


def test_later_fields_leave_other_descriptions_as_they_were():
    assert "position_offset" not in AlbertConfig().to_dict()
    assert AlbertConfig.named("roberta_base").to_dict()["position_offset"] == 2


@pytest.mark.parametrize(("name", "count"), [("roberta_base", 124_645_632), ("roberta_large", 355_359_744)])
def test_roberta_has_the_published_number_of_parameters(name, count):
    counted = parameters(AlbertConfig.named(name))
    assert counted.encoder + counted.pooler == count


def test_brightmart_file_factorises_words_only():
    values = {key: value for key, value in GOOGLE.items() if key in BERT or key == "embedding_size"}
    config = AlbertConfig.from_dict(values | {"directionality": "bidi", "pooler_type": "first_token_transform"})
    assert (config.sharing, config.factorization) == ("all", "word")
    with pytest.raises(UserError, match="ln_type 'preln'"):
        AlbertConfig.from_dict(values | {"directionality": "bidi", "ln_type": "preln"})


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
    "architectures": ["BertModel"], "finetuning_task": null, "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0}, "tokenizer_class": null, "bos_token_id": null, "pad_token_id": 0,
    "eos_token_id": null, "sep_token_id": null, "decoder_start_token_id": null, "task_specific_params": null,
    "problem_type": null, "transformers_version": "4.40.0", "use_cache": true, "_attn_implementation_autoset": true,
    "position_embedding_type": "absolute", "classifier_dropout": null,
    "sentence_transformers": {"version": "3.0.0"}, "sbert_ce_default_activation_function": "torch.nn.Sigmoid"
}""")


def test_every_key_of_transformers_base_class_is_known_and_no_other():
    assert AlbertConfig.from_dict(BERT | BASE_CLASS) == AlbertConfig.from_dict(
        BERT | {"transformers_version": "4.40.0"}
    )
    with pytest.raises(
        UserError, match=r"unknown configuration key 'num_hiden_layers'; did you mean 'num_hidden_layers'"
    ):
        AlbertConfig.from_dict(BERT | BASE_CLASS | {"num_hiden_layers": 3})


@pytest.mark.parametrize("name", [*NAMED, *OTHER_NAMES])
def test_named_configurations_survive_json(name, tmp_path):
    config = AlbertConfig.named(name)
    config.to_json(tmp_path / "config.json")
    assert AlbertConfig.from_json(tmp_path / "config.json") == config


def test_extensions_that_are_not_asked_for_are_not_written():
    assert set(AlbertConfig().to_dict()) == set(vars(AlbertConfig.named("albert_base_v2"))) - EXTENSIONS
    assert AlbertConfig().extensions == []
    looped = AlbertConfig(depth_plan="1+1x10+1")
    assert looped.extensions == ["depth_plan"] and looped.to_dict()["depth_plan"] == "1+1x10+1"
    assert AlbertConfig.from_dict(json.loads(looped.to_json())) == looped


@hypothesis.given(
    heads=st.integers(1, 8), head_size=st.integers(1, 8), layers=st.integers(1, 9), groups=st.integers(1, 9),
    sharing=st.sampled_from(["all", "attention", "ffn", "none"]), square=st.booleans(),
)  # fmt: skip
def test_any_valid_configuration_round_trips_and_no_other_exists(heads, head_size, layers, groups, sharing, square):
    def make():
        sizes = dict(num_attention_heads=heads, hidden_size=heads * head_size, num_hidden_layers=layers)
        return AlbertConfig(**sizes, num_hidden_groups=groups, sharing=sharing, always_project=square)

    if groups > layers:
        with pytest.raises(UserError, match=f"num_hidden_groups {groups} is over num_hidden_layers {layers}"):
            make()
    else:
        assert AlbertConfig.from_dict(json.loads(make().to_json())) == make()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden_size": 770}, "hidden_size 770 is not a multiple of num_attention_heads 12"),
        ({"num_hidden_groups": 13}, "num_hidden_groups 13 is over num_hidden_layers 12"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a whole number of at least 1, not 0"),
        ({"vocab_size": 2.5}, "vocab_size must be a whole number of at least 1, not 2.5"),
        ({"vocab_size": "30000"}, "vocab_size must be a number, not '30000'"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be a probability below 1, not 1.0"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers must be a whole number of at least 1, not 2.0"),
        ({"hidden_size": math.inf}, "hidden_size must be a whole number of at least 1, not inf"),
        ({"hidden_size": math.nan}, "hidden_size must be a whole number of at least 1, not nan"),
        ({"hidden_dropout_prob": math.nan}, "hidden_dropout_prob must be a probability below 1, not nan"),
        ({"layer_norm_eps": -1e-12}, "layer_norm_eps must be finite and not negative"),
        ({"layer_norm_eps": math.inf}, "layer_norm_eps must be finite and not negative, not inf"),
        ({"initializer_range": math.nan}, "initializer_range must be finite and not negative, not nan"),
        ({"hidden_act": ["gelu"]}, r"hidden_act must be a str, not \['gelu'\]"),
        ({"hidden_act": "gleu"}, "hidden_act 'gleu' is none of gelu"),
        ({"sharing": "some"}, "sharing 'some' is none of all"),
        ({"always_project": 1}, "always_project must be a bool, not 1"),
        ({"depth_plan": "1+1x4+1"}, "depth_plan '1+1x4+1' runs 6 blocks, num_hidden_layers is 12; the two must agree"),
        ({"depth_plan": "1+x11"}, "depth_plan '1+x11': 'x11' is no part of a plan; write '1+1x10+1'"),
        ({"depth_plan": "2x6", "inner_group_num": 2}, "depth_plan takes the place of num_hidden_groups and inner"),
        ({"depth_plan": "2x6", "sharing": "none"}, "sharing 'none' shares none; leave one out"),
        ({"hiden_size": 768}, "unknown configuration key 'hiden_size'; did you mean 'hidden_size'?"),
    ],
)
def test_wrong_values_are_named(change, message, tmp_path):
    with pytest.raises(UserError, match=message.replace("?", r"\?").replace("+", r"\+")):
        AlbertConfig().replace(**change)
    file = tmp_path / "albert_config.json"
    for model_type in ({}, {"model_type": "albert"}):
        file.write_text(json.dumps(AlbertConfig().to_dict() | change | model_type))
        with pytest.raises(UserError, match=str(file)):
            AlbertConfig.from_json(file)


def test_other_architectures_and_broken_files_are_refused(tmp_path):
    for key, value in {"model_type": "electra", "position_embedding_type": "relative_key", "is_decoder": True}.items():
        with pytest.raises(UserError, match=key):
            AlbertConfig.from_dict(BERT | {"model_type": "bert"} | {key: value})
    with pytest.raises(UserError, match="no configuration is called 'albert_bass'; did you mean 'albert_base"):
        AlbertConfig.named("albert_bass")
    for text, message in {"{": "is not JSON", "[1]": "holds no JSON object"}.items():
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=message):
            AlbertConfig.from_json(tmp_path / "config.json")
    with pytest.raises(UserError, match="cannot read"):
        AlbertConfig.from_json(tmp_path / "absent.json")


def test_a_damaged_file_never_becomes_another_model(tmp_path):
    file = tmp_path / "config.json"
    for values in ({}, BERT, GOOGLE):
        for lost in ("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            file.write_text(json.dumps({key: value for key, value in values.items() if key != lost}))
            with pytest.raises(UserError, match=f"config.json' lacks .*{lost}"):
                AlbertConfig.from_json(file)
    albert = {key: value for key, value in GOOGLE.items() if key in BERT} | {"model_type": "albert"}
    file.write_text(json.dumps(albert))
    assert (AlbertConfig.from_json(file).sharing, AlbertConfig.from_json(file).embedding_size) == ("all", 128)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        AlbertConfig().hidden_size = 8


BASE = AlbertConfig.named("albert_base_v2")
UNSHARED = BASE.replace(sharing="none")


def at(config, embedding_size):
    return config.replace(embedding_size=embedding_size)


@pytest.mark.parametrize(
    "config, encoder, with_pooler, with_heads",
    [
        (BASE, 11_092_992, 11_683_584, 11_813_810),
        (AlbertConfig.named("albert_large_v2"), 16_634_368, 17_683_968, 17_847_474),
        (AlbertConfig.named("albert_xlarge_v2"), 54_528_512, 58_724_864, 59_021_490),
        (AlbertConfig.named("albert_xxlarge_v2"), 205_814_272, 222_595_584, 223_158_450),
        (AlbertConfig.named("bert_base").replace(vocab_size=30000), 108_490_752, 109_081_344, None),
        (AlbertConfig.named("bert_large").replace(vocab_size=30000), 333_557_760, 334_607_360, None),
        *[(at(BASE, e), None, n, None) for e, n in [(64, 9_681_408), (256, 15_687_936), (768, 31_114_752)]],
        *[(at(UNSHARED, e), None, n, None) for e, n in [(64, 87_648_000), (128, 89_650_176), (256, 93_654_528)]],
        (at(UNSHARED, 768), None, 109_081_344, None),
        (BASE.replace(sharing="attention"), None, 63_647_232, None),
        (BASE.replace(sharing="ffn"), None, 37_686_528, None),
        (at(BASE, 768).replace(sharing="attention"), None, 83_078_400, None),
        (at(BASE, 768).replace(sharing="ffn"), None, 57_117_696, None),
        (AlbertConfig.named("albert_tiny_zh"), None, 4_175_152, None),
        (AlbertConfig.named("albert_tiny_zh_google"), None, 4_080_520, None),
        (AlbertConfig.named("albert_small_zh_google"), None, 4_742_272, None),
        (AlbertConfig.named("albert_base_zh"), None, 10_547_968, None),
    ],
)
def test_parameter_counts_equal_the_published_ones(config, encoder, with_pooler, with_heads):
    counted = parameters(config)
    if encoder is not None:
        assert counted.encoder == encoder
    assert counted.encoder + counted.pooler == with_pooler
    if with_heads is not None:
        assert counted.total == with_heads


@pytest.mark.parametrize(
    "changes",
    [
        {"step_signal": "learned", "hyper_connections": 3, "halting": "act"},
        {"step_signal": "sinusoid", "depth_plan": "1+1x3", "depth_lora_rank": 2},
        {"depth_lora_rank": 3, "depth_lora_target": "ffn", "feed_forward": "glu", "use_bias": False},
        {"depth_lora_rank": 3, "depth_lora_target": "attention", "num_hidden_groups": 3},
    ],
)
def test_the_formula_counts_extensions_over_depth(changes):
    config = AlbertConfig(
        vocab_size=11, hidden_size=8, num_attention_heads=2, intermediate_size=12, max_position_embeddings=6,
        num_hidden_layers=4, **changes,
    )  # fmt: skip
    assert parameters(config).encoder + parameters(config).pooler == AlbertEncoder(config).count_params()
    assert flops(config, 5).depth > 0 or changes.keys() == {"step_signal"}


@hypothesis.given(
    layers=st.integers(1, 5), groups=st.integers(1, 5), inner=st.integers(1, 2), embedding_size=st.sampled_from([4, 8]),
    sharing=st.sampled_from(["all", "attention", "ffn", "none"]), factorization=st.sampled_from(["all", "word"]),
    always_project=st.booleans(),
)  # fmt: skip
# Each example builds two models.
@hypothesis.settings(max_examples=10)
def test_the_formula_counts_what_keras_counts(layers, groups, **fields):
    fields["inner_group_num"] = fields.pop("inner")
    groups = min(groups, layers)
    config = AlbertConfig(
        vocab_size=11, hidden_size=8, num_attention_heads=2, intermediate_size=12, max_position_embeddings=6,
        num_hidden_layers=layers, num_hidden_groups=groups, **fields,
    )  # fmt: skip
    counted, encoder = parameters(config), AlbertEncoder(config)
    assert counted.encoder + counted.pooler == encoder.count_params()
    assert counted.total == AlbertPretrainer(encoder).count_params()
