"""The tokenizers as TensorFlow graphs that own their vocabulary. The only file of the room that needs tensorflow-text."""

import numpy as np
import tensorflow as tf
import tensorflow_text as text


class SentencePieceInGraph(tf.Module):
    """Called on string [batch], gives RaggedTensor int32 [batch, None]. Its custom ops are SentencepieceOp and
    SentencepieceTokenizeOp, which every TensorFlow Serving with tensorflow-text has."""

    def __init__(self, model: bytes, expansion_values: np.ndarray, expansion_splits: np.ndarray):
        super().__init__()
        self._tokenizer = text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._values = expansion_values
        self._splits = expansion_splits

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """ALBERT's digit-comma rule is a table over the vocabulary: most ids stand for themselves."""
        table = tf.RaggedTensor.from_row_splits(self._values, self._splits, validate=False)
        ids = self._tokenizer.tokenize(texts)
        return ids.with_flat_values(tf.gather(table, ids.flat_values)).merge_dims(1, 2)
