"""Text, a task and models to make smaller, of a size that takes seconds."""

import keras
import numpy as np
import pytest

from albert_tf import AlbertEncoder, AlbertSentenceEmbedder
from albert_tf.compression.settings import CompressSettings
from tests.albert_tf.compression.tiny import CONFIG, PIECES, WORDS
from tests.albert_tf.tiny import write_model
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer("\n".join(PIECES).encode())


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Text, and a pair task with numbers."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def sentence():
        return " ".join(random.choice(WORDS, size=random.integers(3, 9)))

    (folder / "text.txt").write_text("\n".join(sentence() for _ in range(60)) + "\n")
    (folder / "pairs").mkdir()
    lines = [f"{sentence()}\t{sentence()}\t{number}" for number in range(40)]
    (folder / "pairs" / "train.tsv").write_text("text\tother\tlabel\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def embedder(tokenizer, tmp_path_factory):
    keras.utils.set_random_seed(3)
    model = AlbertSentenceEmbedder(AlbertEncoder(CONFIG, pooler=False))
    return write_model(tmp_path_factory.mktemp("embedder"), model, tokenizer)


@pytest.fixture(scope="session")
def settings(embedder, data):
    return CompressSettings(
        model=str(embedder), output_dir="", text=str(data / "text.txt"), embedding_size=8, lora_rank=2,
        held_out_rows=16, max_seq_length=16, num_train_steps=6, train_batch_size=16, learning_rate=5e-3,
        save_checkpoints_steps=6
    )  # fmt: skip
