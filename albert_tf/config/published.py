"""Published configurations, and what holds for the files of every family."""

from albert_tf.families import families

NAMED = {name: values for family in families() for name, values in family.named.items()}
OTHER_NAMES = {name: other for family in families() for name, other in family.aliases.items()}
# The files of published folders that hold a configuration.
CONFIG_FILES = " ".join(["config.json", *(family.config_file for family in families() if family.config_file)])

# Keys of published files whose only supported value has no effect on the encoder.
MUST_EQUAL: dict[str, tuple] = {
    "down_scale_factor": (1, 1.0),
    "num_memory_blocks": (0,),
    "net_structure_type": (0,),
    "gap_size": (0,),
    "layers_to_keep": ([],),
    "ln_type": ("postln",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({},),
    "chunk_size_feed_forward": (0,),
    "per_layer_config": (None,),
    "quantization_config": (None,),
}

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
