"""The tokenizers as TensorFlow graphs that own their vocabulary; the only file here that needs tensorflow-text."""

import numpy as np
import tensorflow as tf
import tensorflow_text as text

from tfrecords.wordpiece_tokenizer import MAX_WORD_CHARACTERS, PAGE


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
        # SentencePiece's own reading of bytes that are not UTF-8 differs from Python's.
        ids = self._tokenizer.tokenize(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"))
        return ids.with_flat_values(tf.gather(table, ids.flat_values)).merge_dims(1, 2)


class WordPieceInGraph(tf.Module):
    """Called on string [batch], gives RaggedTensor int32 [batch, None]. Its one custom op is
    WordpieceTokenizeWithOffsets; characters are mapped with core operations, since tensorflow-text's own BERT
    normaliser also folds full-width punctuation, which BERT does not."""

    def __init__(self, pieces: list[str], unk_id: int, pages: np.ndarray, rows: np.ndarray, expansions: np.ndarray):
        super().__init__()
        self._pages, self._rows, self._expansions = pages, rows, expansions
        # The table takes no key twice; of equal lines the last counts.
        ids = {piece: token_id for token_id, piece in enumerate(pieces)}
        initializer = tf.lookup.KeyValueTensorInitializer(list(ids), list(ids.values()), tf.string, tf.int64)
        self._table = tf.lookup.StaticHashTable(initializer, unk_id)
        self._unknown = pieces[unk_id]
        self._tokenizer = text.WordpieceTokenizer(
            self._table, unknown_token=self._unknown, max_bytes_per_word=4 * MAX_WORD_CHARACTERS
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        codes = self._expand(tf.strings.unicode_decode(texts, "UTF-8", errors="replace"))
        words = tf.strings.split(tf.strings.unicode_encode(codes, "UTF-8"))
        too_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > MAX_WORD_CHARACTERS
        words = words.with_flat_values(tf.where(too_long, self._unknown, words.flat_values))
        return tf.cast(self._tokenizer.tokenize(words).merge_dims(1, 2), tf.int32)

    def _expand(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Every character by its expansion (see `wordpiece_tokenizer.character_table`)."""
        flat = codes.flat_values
        rows = tf.gather(self._rows, tf.gather(self._pages, flat // PAGE) * PAGE + flat % PAGE)
        itself = tf.pad(flat[:, None], [[0, 0], [0, self._expansions.shape[1] - 1]])
        expanded = tf.where((rows == 0)[:, None], itself, tf.gather(self._expansions, rows))
        present = expanded > 0
        lengths = tf.reduce_sum(tf.cast(present, tf.int64), axis=1)
        by_character = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(expanded, present), lengths, validate=False)
        return codes.with_flat_values(by_character).merge_dims(1, 2)
