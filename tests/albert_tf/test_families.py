"""Families of published models: one from outside, and what configuration files of ModernBERT's form may say."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file

import albert_tf
from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertPretrainer, AlbertTokenClassifier
from albert_tf.analysis.cost import parameters
from albert_tf.checkpoints import load_huggingface, save_huggingface
from albert_tf.families import families
from serving.inference import make_encoder
from tests.albert_tf.depth_cases import alike
from tests.albert_tf.test_config import BERT, BRIGHTMART, XLNET
from tests.albert_tf.tiny import KINDS, batch, small, table
from tests.refusals import refused
from tests.tfrecords.tokenizers.test_library_bpe import gemma

pytestmark = pytest.mark.usefixtures("eagerly")
NOVA = dict(words=40, width=16, depth=2, heads=2, inside=24, act="silu", longest=32)


@pytest.fixture
def nova(tmp_path, monkeypatch):
    """Installs a package whose entry point names a family."""
    folder = tmp_path / "site" / "nova-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: nova\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[albert_tf.families]\nnova = tests.albert_tf.nova:NOVA\n")
    monkeypatch.syspath_prepend(folder.parent)
    families.cache_clear()
    yield
    families.cache_clear()


def assert_exported(encoder, features):
    """The encoder of an export gives a model's states of tokens and vectors of rows, these also alone."""
    expected, mask, made = encoder(features), features["input_mask"], make_encoder(encoder)
    given = features["input_ids"], mask.sum(axis=1).astype("int32")
    segments = [features[name].astype("int32") for name in ("segment_ids",) if name in features]
    found = tf.function(made, autograph=False)(*given, *segments)
    states = np.asarray(found["sequence_output"]), np.asarray(expected["sequence_output"])
    assert_allclose(states[0][mask > 0], states[1][mask > 0], atol=3e-5)
    if encoder.pooler is not None:
        alone = tf.function(made.pooled, autograph=False)(*given, *segments)
        for vectors in (found["pooled_output"], alone):
            assert_allclose(vectors, expected["pooled_output"], atol=1e-5)


def test_a_family_of_another_package_loads_is_tuned_and_exports(nova, tmp_path):
    config = AlbertConfig.from_dict(NOVA | {"model_type": "nova", "temperature_of_training": 2})
    assert (config.hidden_act, config.embedding_size, config.feed_forward) == ("silu", 16, "glu")
    model = AlbertClassifier(config, 3, labels=["a", "b", "c"])
    save_huggingface(model, tmp_path / "nova")
    tensors = load_file(tmp_path / "nova" / "model.safetensors")
    values = json.loads((tmp_path / "nova" / "config.json").read_text())
    assert tensors["nova.step.1.qkv.weight"].shape == (48, 16) and "nova.pool.bias" in tensors
    assert values["architectures"] == ["NovaForSequenceClassification"] and values["width"] == 16
    loaded = albert_tf.load(tmp_path / "nova")
    features = batch()
    assert_array_equal(loaded.model(features), model(features))
    loaded.model.compile()
    loaded.model.fit(features, np.array([0, 1, 2, 0]), verbose=0)
    assert_exported(loaded.model.encoder, {name: features[name] for name in ("input_ids", "input_mask")})


def test_without_the_package_its_models_are_refused():
    with refused("model_type 'nova' is not supported"):
        AlbertConfig.from_dict(NOVA | {"model_type": "nova"})


ROTARY = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
MODERN = ROTARY | dict(num_hidden_layers=4, num_attention_heads=2, model_type="modernbert")
FULL, LOCAL = "full_attention", "sliding_attention"
BASES = {FULL: {"rope_type": "default", "rope_theta": 5000.0}, LOCAL: {"rope_type": "default", "rope_theta": 70.0}}
# Keys of a file, and the fields that differ from those without them.
FOLLOWED = [
    ({}, dict(attention_window=64, global_attention_every=3, rotary_theta=160000.0, rotary_local_theta=10000.0)),
    ({"rope_parameters": BASES}, dict(rotary_theta=5000.0, rotary_local_theta=70.0)),
    # The new keys win, and an old one counts where they say nothing.
    ({"rope_parameters": {FULL: BASES[FULL]}, "global_rope_theta": 3.0, "local_rope_theta": 9.0},
     dict(rotary_theta=5000.0, rotary_local_theta=9.0)),
    ({"global_rope_theta": 80000.0, "local_rope_theta": None}, dict(rotary_theta=80000.0, rotary_local_theta=0.0)),
    ({"layer_types": [FULL, LOCAL] * 2, "global_attn_every_n_layers": 3}, dict(global_attention_every=2)),
    ({"layer_types": [LOCAL] * 4, "local_attention": 9}, dict(global_attention_every=0, attention_window=4)),
    ({"global_attn_every_n_layers": 1}, dict(attention_window=0, rotary_local_theta=0.0)),
    ({"hidden_activation": "silu", "norm_eps": 1e-12, "layer_norm_eps": 1.0},
     dict(hidden_act="silu", layer_norm_eps=1e-12)),
    ({"classifier_pooling": "mean", "tie_word_embeddings": False}, dict(pooling="mean", tie_word_embeddings=False)),
    # What published models of this form say besides, and changes no number.
    (dict(norm_bias=False, mlp_dropout=0.0, torch_dtype="float16", reference_compile=False, sparse_prediction=False,
          position_embedding_type="absolute", cls_token_id=3), dict(attention_window=64))
]  # fmt: skip


@pytest.mark.parametrize("values, expected", FOLLOWED)
def test_keys_of_modernbert_old_and_new_are_followed_and_written(values, expected, tmp_path):
    config = AlbertConfig.from_dict(MODERN | values)
    assert {name: getattr(config, name) for name in expected} == expected
    save_huggingface(AlbertEncoder(config, pooler=False), tmp_path)
    assert load_huggingface(tmp_path).config == config


def test_published_sizes_have_the_published_number_of_weights():
    counts = {name: parameters(AlbertConfig.named(f"modernbert_{name}")).encoder for name in ("base", "large")}
    assert counts == {"base": 149_014_272, "large": 394_781_696}
    model = AlbertPretrainer(AlbertConfig.from_dict(MODERN | {"tie_word_embeddings": False}), pair_task=None)
    assert parameters(model.encoder.config).total - parameters(model.encoder.config).pooler - 2 * 16 - 2 == (
        model.count_params()
    )


def test_a_head_with_its_own_table_of_words_is_never_tied(tmp_path):
    bert = small(sharing="none", embedding_size=16, tie_word_embeddings=False)
    model = AlbertPretrainer(bert)
    save_huggingface(model, tmp_path)
    again = load_huggingface(tmp_path)
    assert_array_equal(again(batch("pretrainer"))["masked_lm_logits"], model(batch("pretrainer"))["masked_lm_logits"])
    tensors = load_file(tmp_path / "model.safetensors")
    assert (tensors["cls.predictions.decoder.weight"] != tensors["bert.embeddings.word_embeddings.weight"]).any()
    del tensors["cls.predictions.decoder.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with refused("missing: cls.predictions.decoder.weight"):
        load_huggingface(tmp_path)
    # Without a head for words there is nothing to tie.
    save_huggingface(KINDS["classifier"](bert), tmp_path / "classifier")
    assert albert_tf.load(tmp_path / "classifier").model.encoder.config == bert


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_an_export_computes_what_the_last_layer_sees_in_its_window(pooling):
    # The last of five layers is local, and computes [CLS] alone where that is all that is asked for.
    values = MODERN | dict(num_hidden_layers=5, local_attention=8, classifier_pooling=pooling)
    encoder, random = alike(AlbertConfig.from_dict(values)), np.random.default_rng(0)
    mask = (np.arange(40) < np.array([[40], [7], [23]])).astype("int32")
    assert_exported(encoder, {"input_ids": random.integers(3, 40, (3, 40)).astype("int32") * mask, "input_mask": mask})


# Keys of a file with GPT-2's names, as nomic-embed-text 1.5 has it, of another size.
OF_GPT2 = dict(
    model_type="nomic_bert", vocab_size=64, n_embd=16, n_inner=250, n_layer=2, n_head=4, n_positions=8192,
    activation_function="swiglu", attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, causal=False, dense_seq_output=True,
    fused_bias_fc=True, fused_dropout_add_ln=True, initializer_range=0.02, layer_norm_epsilon=1e-12,
    max_trained_positions=2048, mlp_fc1_bias=False, mlp_fc2_bias=False, qkv_proj_bias=False, pad_vocab_size_multiple=64,
    parallel_block=False, parallel_block_tied_norm=False, prenorm=False, reorder_and_upcast_attn=False,
    rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None,
    rotary_scaling_factor=None, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, summary_activation=None,
    summary_first_dropout=0.0, summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True,
    type_vocab_size=2, use_cache=True, use_flash_attn=True, use_rms_norm=False, use_xentropy=True, bos_token_id=None
)  # fmt: skip


def test_names_of_gpt2_mean_what_transformers_writes_by_its_own(tmp_path):
    config = AlbertConfig.from_dict(OF_GPT2)
    save_huggingface(AlbertPretrainer(config, pair_task=None), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["intermediate_size"] == 256 and values["rope_parameters"]["rope_theta"] == 1000
    assert not values.keys() & {"n_embd", "rotary_emb_base"} and AlbertConfig.from_dict(values) == config
    # Its own program's names of tensors, in a folder with its own configuration.
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {name.replace("nomic_bert.", "bert."): value for name, value in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(OF_GPT2))
    assert isinstance(load_huggingface(tmp_path), AlbertPretrainer)


NTK = {"rope_theta": 20000, "rope_scaling": {"type": "ntk", "factor": 8.0}}


def test_the_positions_of_gte_are_those_of_its_own_code():
    config = AlbertConfig.from_dict(ROTARY | NTK | {"model_type": "new", "position_embedding_type": "rope"})
    assert (config.rotary_theta, config.type_vocab_size) == (160000, 1)
    assert config.rotary_factor == pytest.approx(8**0.5)
    assert AlbertConfig.from_dict(ROTARY | {"model_type": "gte"}).rotary_theta == 160000


def test_a_folder_of_gtes_own_code_with_weights_of_tokens_is_an_encoder(tmp_path):
    encoder = AlbertEncoder(AlbertConfig.from_dict(ROTARY | {"model_type": "gte"}), pooler=False)
    save_huggingface(encoder, tmp_path)
    tensors = {f"new.{name}": value for name, value in load_file(tmp_path / "model.safetensors").items()}
    head = {"classifier.weight": np.ones((1, 16), "f4"), "classifier.bias": np.ones(1, "f4")}
    save_file(tensors | head, tmp_path / "model.safetensors")
    values = ROTARY | {"model_type": "new", "architectures": ["NewModel", "NewForTokenClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(values | {"rope_theta": 160000.0}))
    again = load_huggingface(tmp_path)
    assert isinstance(again, AlbertEncoder)
    assert_array_equal(again(batch())["sequence_output"], encoder(batch())["sequence_output"])


def test_heads_that_are_copies_are_written_once_and_others_all(tmp_path):
    model = AlbertClassifier(AlbertConfig.from_dict(ROTARY | {"model_type": "eurobert"}), 3)
    save_huggingface(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_key_value_heads"] == 4
    for half in model.encoder.halves_of("attention"):
        for layer in (half.key, half.value):
            heads = np.asarray(layer.kernel).reshape(16, 2, 2, 4)
            layer.kernel.assign(np.repeat(heads[:, :, :1], 2, axis=2).reshape(16, 16))
    save_huggingface(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_key_value_heads"] == 2
    assert load_file(tmp_path / "model.safetensors")["model.layers.0.self_attn.k_proj.weight"].shape == (8, 16)
    assert_array_equal(load_huggingface(tmp_path)(batch()), model(batch()))


BASES_OF = {
    "bert": BERT,
    "brightmart": BRIGHTMART,
    "xlnet": XLNET | {"model_type": "xlnet", "vocab_size": 30},
    "modernbert": MODERN,
    "nomic": OF_GPT2,
    "gte": ROTARY | NTK | {"model_type": "new"},
    "eurobert": ROTARY | {"model_type": "eurobert"},
}
OTHERS = table(r"""
    bert       | {"model_type": "funnel"}              | model_type
    bert       | {"model_type": "bert", "position_embedding_type": "relative_key"} | position_embedding_type
    bert       | {"model_type": "bert", "is_decoder": true} | is_decoder
    bert       | {"transformers_version": "4.40.0", "num_hiden_layers": 3} | did you mean 'num_hidden_layers'
    bert       | {"model_type": "distilbert", "n_heads": 3} | n_heads 3 and another key for num_attention_heads disagree
    brightmart | {"ln_type": "preln"}             | ln_type 'preln'
    xlnet      | {"bi_data": true}                     | bi_data True is another architecture
    xlnet      | {"same_length": true}                 | same_length True is another
    xlnet      | {"num_attention_heads": 2}            | num_attention_heads 2 and another key for
    xlnet      | {"d_head": 8}                         | d_head 8 is another architecture
    xlnet      | {"clamp_length": 3}                   | key 'clamp_length'; did you mean 'clamp_len'
    modernbert | {"layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]} | layer_types
    modernbert | {"layer_types": ["full_attention", "chunked_attention", "chunked_attention", "full_attention"]} | layer_types
    modernbert | {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 9.0}}} | rotary positions full_attention
    modernbert | {"rope_scaling": {"type": "linear", "factor": 2}} | rotary positions rope_scaling
    modernbert | {"norm_bias": true}             | attention_bias None with norm_bias True is another architecture
    modernbert | {"decoder_bias": false}         | decoder_bias False is another architecture
    modernbert | {"classifier_bias": true}       | classifier_bias True is another architecture
    modernbert | {"classifier_pooling": "max"}   | pooling 'max' is none of cls, mean
    modernbert | {"local_attention": 1}          | local_attention must be a whole number of at least 2
    modernbert | {"hiden_activation": "silu"}    | did you mean 'hidden_activation'
    nomic      | {"rotary_emb_fraction": 0.5}    | rotary_emb_fraction 0.5 is another architecture
    nomic      | {"rotary_emb_fraction": null}   | rotary_emb_fraction
    nomic      | {"activation_function": "gelu"} | activation_function 'gelu' is another architecture
    nomic      | {"mlp_fc1_bias": true}          | mlp_fc1_bias True is another architecture
    nomic      | {"rotary_scaling_factor": 2}    | rotary_scaling_factor 2 is another architecture
    nomic      | {"hidden_act": "gelu"}          | n_embd and hidden_act are of two forms of this file
    nomic      | {"hidden_size": 32}             | another key for hidden_size disagree
    nomic      | {"num_experts": 8}              | num_experts 8 is another architecture
    nomic      | {"prenorm": true}               | prenorm True is another architecture
    gte        | {"rope_theta": null}            | rotary positions .*ntk.* are another architecture
    gte        | {"rope_theta": null, "rope_scaling": null} | rotary_theta must be a number
    gte        | {"logn_attention_scale": true}  | logn_attention_scale True is another architecture
    gte        | {"layer_norm_type": "rms_norm"} | layer_norm_type 'rms_norm' is another architecture
    gte        | {"rope_scaling": {"type": "yarn", "factor": 2.0}} | rotary positions .*yarn.* are another architecture
    gte        | {"partial_rotary_factor": 0.5}  | rotary positions .*partial_rotary_factor
    gte        | {"head_dim": 8}                 | head_dim 8 is another architecture
    eurobert   | {"num_key_value_heads": 3}      | num_key_value_heads 3 is no divisor of num_attention_heads 4
    eurobert   | {"mlp_bias": true}              | mlp_bias True with attention_bias False is another architecture
    eurobert   | {"classifier_pooling": "max"}   | classifier_pooling 'max' is none of bos, mean, late
""")  # noqa: E501


@pytest.mark.parametrize("name, changes, message", OTHERS)
def test_other_models_of_a_familys_type_and_unknown_keys_are_refused(name, changes, message):
    with refused(message):
        AlbertConfig.from_dict(BASES_OF[name] | json.loads(changes))


@pytest.mark.parametrize("name", ["nomicbert", "gte_classifier", "eurobert_classifier"])
def test_exports_of_new_families_compute_what_the_model_does(name):
    folder = Path(__file__).parent / "gold" / "huggingface" / name
    assert_exported(load_huggingface(folder).encoder, dict(np.load(folder / "inputs.npz")))


def test_a_folder_of_mmbert_tags_words_and_is_saved(tmp_path):
    library = gemma()
    config = AlbertConfig.from_dict(MODERN | dict(vocab_size=library.get_vocab_size(), local_attention=8))
    save_huggingface(AlbertTokenClassifier(config, 3, labels=["O", "B-X", "I-X"]), tmp_path)
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    loaded, text = albert_tf.load(tmp_path), "All human beings are\nborn <table> free"
    row = loaded.preprocessor()([text])
    assert row["input_ids"][row["input_mask"] > 0].tolist() == library.encode(text).ids
    (words,) = loaded.predict([text])
    assert [word for word, _ in words] == text.split()
    loaded.save(tmp_path / "saved")
    assert albert_tf.load(tmp_path / "saved").predict([text]) == [words]
    with refused("no operations in a SavedModel; export with --inputs=ids"):
        loaded.export(tmp_path / "texts")
