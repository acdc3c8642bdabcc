"""Makes random tiny RoBERTas and MPNets with transformers, and what they answer.

`python make_roberta.py` writes the gold here. Needs PyTorch and transformers (made with torch 2.13.0 and transformers
5.23.0). Each folder holds what `save_pretrained` wrote, `inputs.npz` and `outputs.npz`.
"""

import sys
from pathlib import Path

import numpy as np

HEADS = {
    "roberta": "RobertaForMaskedLM",
    "roberta_model": "RobertaModel",
    "roberta_classifier": "RobertaForSequenceClassification",
    "roberta_tagger": "RobertaForTokenClassification",
    "roberta_spans": "RobertaForQuestionAnswering",
    "roberta_choices": "RobertaForMultipleChoice",
}
HEADS |= {name.replace("roberta", "mpnet"): head.replace("Roberta", "MPNet") for name, head in HEADS.items()}
COMMITTED = ("roberta", "roberta_classifier", "mpnet", "mpnet_classifier")
# Of MPNet, distances beyond the last bucket.
LENGTHS = {"Roberta": [12, 7, 4, 9, 12, 5], "MPNet": [150, 23, 4, 131, 150, 5]}


def make(folder, architecture, seed=0):
    """Writes a random model of a class of transformers, inputs with padding, and its answers in float32."""
    import torch
    import transformers

    torch.manual_seed(seed)
    family = next(family for family in LENGTHS if architecture.startswith(family))
    lengths, size = LENGTHS[family], 16 if family == "Roberta" else 8
    own = {"type_vocab_size": 1} if family == "Roberta" else {}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=60, hidden_size=size, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=lengths[0] + 2, layer_norm_eps=1e-5,
        num_labels=2 if architecture.endswith("Answering") else 3, **own
    )  # fmt: skip
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Large enough that every part matters, the padding's rows, biases and layer norms, too.
            is_scale = "norm" in name.lower() and name.endswith("weight")
            weight.copy_(torch.randn_like(weight) * 0.3 + (1.0 if is_scale else 0.0))
    model.save_pretrained(folder)
    generator = np.random.default_rng(seed)
    shape = (2, 3, lengths[0]) if architecture.endswith("Choice") else (4, lengths[0])
    ids = generator.integers(3, 60, shape)
    ids[..., 0] = 0
    for row, length in zip(ids.reshape(-1, lengths[0]), lengths):
        row[length - 1], row[length:] = 2, 1
    mask = (ids != 1).astype("int32")
    asked = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    with torch.no_grad():
        answers = model(**asked, output_hidden_states=True)
    wanted = ("logits", "start_logits", "end_logits", "last_hidden_state", "pooler_output")
    outputs = {name: answers[name].numpy() for name in wanted if name in answers}
    outputs["hidden_states"] = np.stack([state.numpy() for state in answers["hidden_states"]])
    np.savez_compressed(folder / "inputs.npz", input_ids=ids.astype("int32"), input_mask=mask)
    np.savez_compressed(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMITTED:
        make(Path(__file__).parent / name, HEADS[name])
