from collections.abc import Sequence

import keras
import numpy as np

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.tasks.rows import text_rows
from albert_tf.training.loop.batches import predict
from tfrecords.tokenizers.base import Tokenizer


class Likeness:
    """Computes the mean cosine between a model's and a teacher's vectors of the same `texts`."""

    def __init__(
        self,
        teacher: keras.Model,
        tokenizer: Tokenizer,
        texts: Sequence[tuple[str, ...]],
        max_seq_length: int,
        batch_size: int,
    ):
        self.texts, self.max_seq_length, self.batch_size = texts, max_seq_length, batch_size
        self._last: tuple[keras.Model | None, keras.Model | None] = (None, None)
        self._vectors = self._embed(teacher, tokenizer)

    def __call__(self, model: keras.Model, tokenizer: Tokenizer) -> float:
        return float(np.mean(np.sum(self._embed(model, tokenizer) * self._vectors, axis=1)))

    def _embed(self, model: keras.Model, tokenizer: Tokenizer) -> np.ndarray:
        rows = text_rows(tokenizer, list(zip(*self.texts)), self.max_seq_length)
        # A new embedder would have to trace its graph again.
        if self._last[0] is not model:
            self._last = model, _embedder_of(model)
        return np.array(predict(self._last[1], rows, self.batch_size, self.max_seq_length), "float64")


def _embedder_of(model: keras.Model) -> AlbertSentenceEmbedder:
    if isinstance(model, AlbertSentenceEmbedder) and model.normalize:
        return model
    pooling = model.pooling if isinstance(model, AlbertSentenceEmbedder) else "mean"
    return AlbertSentenceEmbedder(encoder_of(model), pooling=pooling)
