"""A tiny BERT whose words are known, and how a model folder is written."""

import json

from tests.albert_tf.tiny import small

WORDS = ["a", "the", "dull", "fine", "film", "was", "play", "actor", "and", "not", "very", "good", "bad", "plot"]
UNREAD = ["zebra", "yak"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *WORDS, *UNREAD, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
SIZES = {"vocab_size": len(PIECES), "embedding_size": 16, "max_position_embeddings": 24}
CONFIG = small(**SIZES, sharing="none", initializer_range=0.3)


def report_of(folder):
    return json.loads((folder / "compress.json").read_text())
