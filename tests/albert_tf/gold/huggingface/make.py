"""Makes random tiny models of several families with transformers, and what they answer.

`python make.py` writes the gold here. Needs PyTorch and transformers (made with torch 2.13.0 and transformers 5.23.0).
Each folder holds what `save_pretrained` wrote, `inputs.npz` and `outputs.npz`.
"""

import sys
from pathlib import Path

import numpy as np

# Of each family: its configuration, the lengths of rows, and the ids of [CLS], [SEP] and padding.
COMMON = dict(vocab_size=60, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24, layer_norm_eps=1e-5)
ROBERTA = COMMON | dict(hidden_size=16, max_position_embeddings=14, type_vocab_size=1)
MODERN = dict(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2)
MODERN |= dict(local_attention=8, pad_token_id=1, classifier_pooling="mean")
ROTARY = dict(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
ROTARY |= dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)
# gte-multilingual's positions, as transformers writes them.
STRETCHED = dict(rope_type="linear", rope_theta=160000.0, factor=8**0.5)
DISTIL = dict(vocab_size=60, n_layers=3, n_heads=2, dim=16, hidden_dim=24, max_position_embeddings=12)
XLNET = dict(vocab_size=60, d_model=16, n_layer=3, n_head=4, d_inner=24, mem_len=None)
LENGTHS = [12, 7, 4, 9, 12, 5]
FAMILIES = {
    "Roberta": (ROBERTA, LENGTHS, (0, 2, 1)),
    # Distances beyond the last bucket.
    "NomicBert": (ROTARY | dict(layer_norm_eps=1e-5), LENGTHS, (0, 2, 1)),
    "Gte": (ROTARY | dict(layer_norm_eps=1e-5, type_vocab_size=2, rope_parameters=STRETCHED), LENGTHS, (0, 2, 1)),
    "EuroBert": (ROTARY | dict(num_key_value_heads=2, mask_token_id=3), LENGTHS, (0, 2, 1)),
    "MPNet": (COMMON | dict(hidden_size=8, max_position_embeddings=152), [150, 23, 4, 131, 150, 5], (0, 2, 1)),
    # Rows beyond the window.
    # Of embeddings with a projection.
    "Electra": (COMMON | dict(hidden_size=16, embedding_size=8, max_position_embeddings=12), LENGTHS, (2, 3, 0)),
    "DistilBert": (DISTIL, LENGTHS, (2, 3, 0)),
    "XLNet": (XLNET, LENGTHS, (2, 3, 0)),
    "ModernBert": (MODERN, [40, 12, 4, 31, 40, 5], (0, 2, 1)),
}
TASKS = {
    "": "ForMaskedLM",
    "_model": "Model",
    "_classifier": "ForSequenceClassification",
    "_tagger": "ForTokenClassification",
    "_spans": "ForQuestionAnswering",
    "_choices": "ForMultipleChoice",
}
# Classes that transformers does not have, or not by this name.
LACKING = dict.fromkeys(("NomicBert", "Gte", "EuroBert"), ("_spans", "_choices")) | {"XLNet": ("", "_spans")}
HEADS = {
    f"{family.lower()}{task}": f"{family}{head}"
    for family in FAMILIES
    for task, head in TASKS.items()
    if task not in LACKING.get(family, ())
}
# Models whose configurations are unusual.
CHANGES: dict[str, dict] = {
    "modernbert_biases": dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_pooling="cls"),
    "modernbert_untied": dict(tie_word_embeddings=False, classifier_activation="silu", hidden_activation="silu"),
    "modernbert_bias_words": dict(norm_bias=True, attention_bias=True, mlp_bias=True),
    "gte_one_segment": dict(type_vocab_size=1, rope_parameters=None),
    "gte_no_segments": dict(type_vocab_size=0),
    "nomicbert_untied": dict(tie_word_embeddings=False, hidden_act="gelu"),
    "eurobert_tied": dict(tie_word_embeddings=True, num_key_value_heads=1),
    "eurobert_biases": dict(attention_bias=True, mlp_bias=True, num_key_value_heads=4),
    "eurobert_mean": dict(classifier_pooling="mean"),
    "eurobert_bos": dict(classifier_pooling="bos"),
    "roberta_untied": dict(tie_word_embeddings=False),
}
HEADS |= {
    "modernbert_biases": "ModernBertForSequenceClassification",
    "modernbert_untied": "ModernBertForMaskedLM",
    "modernbert_bias_words": "ModernBertForMaskedLM",
    "roberta_untied": "RobertaForMaskedLM",
    "xlnet_spans": "XLNetForQuestionAnsweringSimple",
    **{"gte_one_segment": "GteForMaskedLM", "gte_no_segments": "GteModel", "nomicbert_untied": "NomicBertForMaskedLM"},
    **dict.fromkeys(("eurobert_tied", "eurobert_biases"), "EuroBertForMaskedLM"),
    **dict.fromkeys(("eurobert_mean", "eurobert_bos"), "EuroBertForSequenceClassification"),
}
COMMITTED = ("roberta", "roberta_classifier", "mpnet", "mpnet_classifier")
COMMITTED += ("nomicbert", "gte_classifier", "eurobert", "eurobert_classifier")
COMMITTED += ("modernbert", "modernbert_classifier", "distilbert_classifier", "electra")


def make(folder, name, seed=0, length=0, pads_left=False):
    """Writes the random model called `name`, inputs with padding, and its answers in float32.

    `length`, if given, is that of the rows.
    """
    import torch
    import transformers

    torch.manual_seed(seed)
    architecture = HEADS[name]
    family = next(family for family in FAMILIES if architecture.startswith(family))
    values, lengths, (cls, sep, pad) = FAMILIES[family]
    lengths = [length, length // 2, 5, length - 3, length, 9] if length else lengths
    labels = {"num_labels": 2 if "Answering" in architecture else 3}
    config = getattr(transformers, f"{family}Config")(**values | labels | CHANGES.get(name, {}))
    model = getattr(transformers, architecture)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for own, weight in model.named_parameters():
            # Large enough that every part matters, the padding's rows, biases and layer norms, too.
            is_scale = "norm" in own.lower() and own.endswith("weight")
            weight.copy_(torch.randn_like(weight) * 0.3 + (1.0 if is_scale else 0.0))
    model.save_pretrained(folder)
    # XLNet's summary is that of the last column.
    pads_left = pads_left or family == "XLNet"
    generator = np.random.default_rng(seed)
    shape = (2, 3, lengths[0]) if architecture.endswith("Choice") else (4, lengths[0])
    ids = generator.integers(3, 60, shape)
    for row, count in zip(ids.reshape(-1, lengths[0]), lengths):
        row[0], row[count - 1], row[count:] = cls, sep, pad
        row[:] = np.roll(row, pads_left * (lengths[0] - count))
    mask = (ids != pad).astype("int32")
    asked = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    segments = {}
    if family in ("NomicBert", "Gte") and config.type_vocab_size > 1:
        segments = {"segment_ids": mask * (np.arange(lengths[0]) > 3)}
        asked["token_type_ids"] = torch.tensor(segments["segment_ids"]).long()
    with torch.no_grad():
        answers = model(**asked, output_hidden_states=True)
    wanted = ("logits", "start_logits", "end_logits", "last_hidden_state", "pooler_output")
    outputs = {one: answers[one].numpy() for one in wanted if one in answers}
    outputs["hidden_states"] = np.stack([state.numpy() for state in answers["hidden_states"]])
    np.savez_compressed(folder / "inputs.npz", input_ids=ids.astype("int32"), input_mask=mask, **segments)
    np.savez_compressed(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMITTED:
        make(Path(__file__).parent / name, name)
