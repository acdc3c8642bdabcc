"""A tiny embedder in a folder, and texts for it."""

import keras

from albert_tf import AlbertSentenceEmbedder
from tests.albert_tf.tiny import small, write_model
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

WORDS = ["good", "bad", "film", "a", "the", "was", "plot", "dull"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = small(
    vocab_size=len(PIECES), embedding_size=16, num_hidden_layers=1, intermediate_size=16, max_position_embeddings=16,
    initializer_range=0.5
)  # fmt: skip
TEXTS = [f"{one} {other} {one}" for one in WORDS for other in WORDS if one != other]


def made(folder, seed=0, **task):
    """Writes a model that learned nothing."""
    keras.utils.set_random_seed(seed)
    folder.mkdir()
    tokenizer = WordPieceTokenizer("\n".join(PIECES).encode())
    return write_model(folder, AlbertSentenceEmbedder(CONFIG), tokenizer, max_seq_length=16, **task)
