"""Writes folders of rotary encoders whose config.json has odd keys, and what transformers answers from each.

    python encoders.py OUTPUT SEED COUNT

`OUTPUT/NUMBER` is a folder, `NUMBER.json` its draw; `NUMBER.npz` holds ids, mask and the answer at tokens, unless
transformers refuses the folder or lacks some of its weights. The number of a draw that is done is a line of the output.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

SIZES = dict(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=4)
SIZES |= dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, num_labels=3)
FULL, LOCAL, MISSING = "full_attention", "sliding_attention", "missing"
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
# Keys of config.json and values that are put there after the weights are written.
OF_ALL = {
    "head_dim": (None, 4, 8, MISSING),
    "initializer_range": (0.5, MISSING),
    "is_decoder": (True, False),
    "max_position_embeddings": (8, 4096, MISSING),
    "num_hidden_layers": (3, 4),
    "pad_token_id": (None, 0, 3, MISSING),
    "tie_word_embeddings": (True, False, MISSING),
    "torch_dtype": ("bfloat16", "float32"),
    "chunk_size_feed_forward": (0, 2),
    "position_embedding_type": ("absolute", "relative_key", "rope"),
    "hidden_dropout_prob": (0.5, 0),
    "sliding_window": (3, None),
    "partial_rotary_factor": (0.5, 1.0, None),
    "rope_theta": (50.0, None),
    "rope_scaling": (None, {"type": "linear", "factor": 3.0}, {"type": "ntk", "factor": 2.0}, {"rope_type": "dynamic"}),
    "rope_parameters": (
        *(None, {}, MISSING, {"rope_theta": 5.0}, {"rope_theta": 7.0, "rope_type": "linear", "factor": 2.0}),
        *({"rope_type": "default", "factor": 4.0}, {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 9.0}),
        {"rope_type": "default", "rope_theta": 30.0, "partial_rotary_factor": 0.5},
    ),
    "transformers_version": ("4.48.0", MISSING),
    "auto_map": ({"AutoModel": "x--y.Z"},),
}
ACTS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh", "quick_gelu", MISSING)
OF_BERT = {"hidden_act": ACTS, "layer_norm_eps": (1e-12, 0.1, MISSING), "type_vocab_size": (0, 1, 2, MISSING)}
FAMILIES = {
    "NomicBert": ({}, OF_BERT | {"n_layer": (2, 4), "n_embd": (16, 32), "rotary_emb_base": (9.0,), "prenorm": (True,)}),
    "Gte": ({"type_vocab_size": 2}, OF_BERT | {"layer_norm_type": ("rms",), "logn_attention_scale": (True, False)}),
    "EuroBert": (
        {"num_key_value_heads": 2, "mask_token_id": 3},
        {
            **{"hidden_act": ACTS, "rms_norm_eps": (1e-12, 0.1, MISSING), "layer_norm_eps": (0.3,)},
            **{"classifier_pooling": ("bos", "mean", "late", "cls", MISSING), "num_key_value_heads": (1, 2, 4, None)},
            **dict.fromkeys(("attention_bias", "mlp_bias"), (True, False, MISSING)),
            **{"pretraining_tp": (2, 1), "use_cache": (True,)},
        },
    ),
    "ModernBert": (
        {"local_attention": 8},
        {
            **{"hidden_activation": ACTS, "classifier_activation": ACTS, "hidden_act": ("relu",)},
            **{
                "norm_eps": (1e-12, 0.1, MISSING),
                "layer_norm_eps": (0.3,),
                "classifier_pooling": ("cls", "mean", "max"),
            },
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), (True, False, MISSING)),
            **{"decoder_bias": (True, False), "local_attention": (4, 7, 1, 0, 128, None, MISSING)},
            **{
                "global_attn_every_n_layers": (1, 2, 3, 9),
                "global_rope_theta": (60.0,),
                "local_rope_theta": (3.0, None),
            },
            "layer_types": (None, MISSING, [FULL] * 4, [LOCAL] * 4, [FULL, LOCAL] * 2, [LOCAL, FULL] * 2, [FULL] * 3),
            "rope_parameters": (
                *(None, MISSING, {}, {"rope_theta": 5.0}, {FULL: {"rope_theta": 5.0}}, {FULL: None}),
                *({FULL: {"rope_type": "linear", "factor": 2.0}}, {FULL: {}, LOCAL: {"rope_theta": 8.0}}),
            ),
        },
    ),
}


def changes(chance, values):
    """Draws some of the keys, each with a value."""
    keys = chance.sample(sorted(values), chance.choice((1, 1, 2, 3)))
    return {key: chance.choice(values[key]) for key in keys}


def write(folder, family, head, own, seed):
    config = getattr(transformers, f"{family}Config")(**SIZES | own)
    model = getattr(transformers, f"{family}{head}")._from_config(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Default ones hide a gate in the place of its other half.
            is_scale = "norm" in name.lower() and name.endswith("weight")
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator) + is_scale)
    model.save_pretrained(folder)


def answer(folder, family, head, seed):
    own = {"attn_implementation": "eager", "dtype": torch.float32, "output_loading_info": True}
    model, found = getattr(transformers, f"{family}{head}").from_pretrained(folder, **own)
    if any(found.values()):
        raise ValueError(f"its weights do not fit: {found}")
    generator = np.random.default_rng(seed)
    mask = (np.arange(30) < np.array([[30], [11]])).astype("int32")
    ids = generator.integers(3, 60, mask.shape).astype("int32") * mask + (1 - mask)
    asked = {"input_ids": torch.tensor(ids).long(), "attention_mask": torch.tensor(mask).long()}
    with torch.no_grad():
        answers = model.eval()(**asked)
    answers = (answers["logits"] if "logits" in answers else answers["last_hidden_state"]).numpy()
    return {"ids": ids, "mask": mask, "answer": answers[mask > 0] if answers.ndim == 3 else answers}


def main(output, seed, count):
    output, chance = Path(output), random.Random(seed)
    for number in range(count):
        family, head = chance.choice(sorted(FAMILIES)), chance.choice(HEADS)
        own, values = FAMILIES[family]
        changed, folder = changes(chance, OF_ALL | values), output / str(number)
        result = {"family": family, "head": head, "changes": changed}
        write(folder, family, head, own, seed + number)
        config = json.loads((folder / "config.json").read_text()) | changed
        config = {key: value for key, value in config.items() if value != MISSING}
        (folder / "config.json").write_text(json.dumps(config))
        try:
            found = answer(folder, family, head, seed + number)
            if np.isnan(found["answer"]).any():
                raise ValueError("the answer is no number")
            np.savez(output / f"{number}.npz", **found)
        except Exception as error:
            result["refused"] = repr(error)[:300]
        (output / f"{number}.json").write_text(json.dumps(result))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
