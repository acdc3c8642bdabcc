"""Published configurations, and keys of their files that do not affect the encoder."""

from typing import Any

from albert_tf.permutation import configuration as permutation

_BASE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
_LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
# The published xlarge files say 16 heads, though the paper's rule of hidden_size / 64 would give 32.
_XLARGE = dict(hidden_size=2048, num_hidden_layers=24, num_attention_heads=16, intermediate_size=8192)
_XXLARGE = dict(hidden_size=4096, num_hidden_layers=12, num_attention_heads=64, intermediate_size=16384)
_TINY = dict(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1248)
_SMALL = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
_DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
_CHINESE = dict(vocab_size=21128)
_BERT = _DROPOUT | dict(sharing="none")
# The released configurations: 512 tokens after two unused rows, one segment type, transformers' exact gelu.
_ROBERTA = _BERT | dict(vocab_size=50265, max_position_embeddings=514, position_offset=2, type_vocab_size=1)
_ROBERTA |= dict(layer_norm_eps=1e-5, hidden_act="gelu_erf")
# What a model of MPNet has whatever its file says: no segments, 32 buckets, and positions counted from the row after
# that of padding, 1 (transformers modeling_mpnet.py, compute_position_bias and MPNetEmbeddings).
MPNET = dict(relative_attention_num_buckets=32, position_offset=2, type_vocab_size=1)
_MPNET = _BERT | MPNET | dict(vocab_size=30527, max_position_embeddings=514, layer_norm_eps=1e-5, hidden_act="gelu_erf")

NAMED = {
    # README of google-research/albert: version 2 trains without dropout, version 1 with it except for xxlarge.
    "albert_base_v1": _BASE | _DROPOUT,
    "albert_large_v1": _LARGE | _DROPOUT,
    "albert_xlarge_v1": _XLARGE | _DROPOUT,
    "albert_xxlarge_v1": _XXLARGE,
    "albert_base_v2": _BASE,
    "albert_large_v2": _LARGE,
    "albert_xlarge_v2": _XLARGE,
    "albert_xxlarge_v2": _XXLARGE,
    # google-research/albert issue 154: the Chinese models use ReLU.
    "albert_base_zh": _BASE | _CHINESE | dict(hidden_act="relu"),
    "albert_large_zh": _LARGE | _CHINESE | dict(hidden_act="relu"),
    "albert_xlarge_zh": _XLARGE | _CHINESE | dict(hidden_act="relu", initializer_range=0.014),
    "albert_xxlarge_zh": _XXLARGE | _CHINESE | dict(hidden_act="relu", num_attention_heads=16, initializer_range=0.01),
    # brightmart/albert_zh: its own code (`factorization` "word"), and google-research's code trained by it.
    "albert_tiny_zh": _TINY | _CHINESE | dict(factorization="word"),
    "albert_small_zh": _SMALL | _CHINESE | dict(factorization="word"),
    "albert_tiny_zh_google": _TINY | _CHINESE,
    "albert_small_zh_google": _SMALL | _CHINESE,
    "bert_base_uncased": _BASE | _BERT | dict(vocab_size=30522, embedding_size=768),
    "bert_large_uncased": _LARGE | _BERT | dict(vocab_size=30522, embedding_size=1024),
    "bert_base_cased": _BASE | _BERT | dict(vocab_size=28996, embedding_size=768),
    "bert_large_cased": _LARGE | _BERT | dict(vocab_size=28996, embedding_size=1024),
    "roberta_base": _BASE | _ROBERTA | dict(embedding_size=768),
    "roberta_large": _LARGE | _ROBERTA | dict(embedding_size=1024),
    "mpnet_base": _BASE | _MPNET | dict(embedding_size=768),
    **permutation.named(_BASE, _LARGE),
}

OTHER_NAMES = {
    "albert_base": "albert_base_v2",
    "albert_large": "albert_large_v2",
    "albert_xlarge": "albert_xlarge_v2",
    "albert_xxlarge": "albert_xxlarge_v2",
    "albert_tiny": "albert_tiny_zh_google",
    "albert_small": "albert_small_zh_google",
    "bert_base": "bert_base_uncased",
    "bert_large": "bert_large_uncased",
}

# Lan et al. 2020, Table 1: millions of parameters as printed there.
PAPER = {
    "bert_base_uncased": 108,
    "bert_large_uncased": 334,
    "albert_base_v2": 12,
    "albert_large_v2": 18,
    "albert_xlarge_v2": 60,
    "albert_xxlarge_v2": 235,
}

# transformers' model types with RoBERTa's form; only their vocabularies differ.
ROBERTA_TYPES = ("roberta", "xlm-roberta", "camembert")

# Values that its files must have, and no other class's may.
MPNET_MUST_EQUAL: dict[str, tuple] = {"relative_attention_num_buckets": (32,)}

# Keys of published files whose only supported value has no effect on the encoder.
MUST_EQUAL: dict[str, tuple] = {
    "down_scale_factor": (1, 1.0),
    "num_memory_blocks": (0,),
    "net_structure_type": (0,),
    "gap_size": (0,),
    "layers_to_keep": ([],),
    "ln_type": ("postln",),
    "model_type": ("albert", "bert", "mpnet", *ROBERTA_TYPES),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_word_embeddings": (True,),
    "pruned_heads": ({},),
    "chunk_size_feed_forward": (0,),
    "per_layer_config": (None,),
    "quantization_config": (None,),
}

# Defaults of transformers' configuration classes of these types.
DEFAULTS: dict[str, dict[str, Any]] = {
    "albert": {"hidden_act": "gelu_new"},
    "bert": {"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
}
DEFAULTS |= dict.fromkeys(ROBERTA_TYPES, DEFAULTS["bert"]) | {"mpnet": DEFAULTS["bert"] | MPNET}

# Of configuration files that are read.
MODEL_TYPES = (*DEFAULTS, *permutation.MUST_EQUAL["model_type"])

# The files of published folders that hold a configuration.
CONFIG_FILES = f"config.json albert_config*.json bert_config*.json {permutation.CONFIG_FILE}"

# Keys of config.json without effect on an encoder's or head's results, by reason.
WITHOUT_EFFECT: dict[str, str] = {
    "ids of special tokens, which the tokenizer says": """
bos_token_id cls_token_id decoder_start_token_id eos_token_id eos_token_ids mask_token_id pad_token_id sep_token_id
unk_token_id""",
    "of heads, read with them": """
architectures finetuning_task id2label label2id num_labels problem_type sbert_ce_default_activation_function
sentence_transformers""",
    "of training": """
classifier_dropout classifier_dropout_prob gradient_checkpointing summary_last_dropout use_bfloat16 use_mems_train
pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type""",
    "of text generation": """
bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id is_composition length_penalty max_length
min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences prefix remove_invalid_values
repetition_penalty start_n_top end_n_top suppress_tokens task_specific_params temperature tie_encoder_decoder top_k
top_p typical_p untie_r use_mems use_mems_eval""",
    "of the program that runs the model": """
attn_implementation directionality dtype experts_implementation output_attentions output_hidden_states output_past
output_scores return_dict return_dict_in_generate tf_legacy_loss torch_dtype torchscript transformers.js_config
use_cache use_return_dict xla_device""",
    "names and versions": """
adapters emb_size label_list language model_name name name_or_path tokenizer_class transformers_version""",
}
IGNORED_KEYS = frozenset(" ".join(WITHOUT_EFFECT.values()).split())
