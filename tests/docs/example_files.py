"""Small models and texts under the names that the guides use."""

import json
import string
from pathlib import Path

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += [f"{mark}{one}" for mark in ("", "##") for one in string.ascii_lowercase + string.digits] + list(".,?!'-%")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def write_models(place: Path) -> None:
    """Writes an untrained BERT of six narrow layers as the sentence encoder that most guides name."""
    from albert_tf import AlbertConfig, AlbertEncoder
    from albert_tf.checkpoints import save_huggingface

    config = AlbertConfig.named("bert_base_uncased").replace(
        vocab_size=len(PIECES), embedding_size=16, hidden_size=16, num_hidden_layers=6, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    encoder = AlbertEncoder(config)
    for folder in (place / MINILM, place / "minilm"):
        save_huggingface(encoder, folder)
        (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"}
                   for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))]  # fmt: skip
        (folder / "modules.json").write_text(json.dumps(modules))
