"""Converts token ids to texts like `Tokenizer.decode` of the `tokenizers` library."""

import tensorflow as tf

from tfrecords.reading.framing import TextFramer
from tfrecords.tokenizers.base import Tokenizer

# The separator of pieces, then replacements in order, by the kind of the vocabulary.
_JOINED = {
    "wordpiece": (" ", ((" ##", ""), (r" ([.?!,])", r"\1"))),
    "sentencepiece": ("", (("▁", " "), (r"\A ", ""))),
    "bpe": ("", ()),
}


class Decoder(tf.Module):
    """Converts token ids to texts.

    Example:
        >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
        >>> tokenizer = WordPieceTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK] a film ##s .".replace(" ", chr(10)).encode())
        >>> decoder = Decoder(TextFramer(tokenizer, 8))
        >>> decoder(tf.constant([[2, 5, 6, 7, 8, 3]]), tf.constant([6]), tf.constant([True])).numpy().tolist()
        [b'a films.']
    """

    def __init__(self, framer: TextFramer):
        super().__init__()
        tokenizer = framer.tokenizer
        self._pieces = tf.constant(tokenizer.piece_bytes) if tokenizer.kind == "bpe" else framer.pieces
        self._special, self._kind = special_ids(tokenizer), tokenizer.kind

    def __call__(self, ids: tf.Tensor, lengths: tf.Tensor, skip_special_tokens: tf.Tensor) -> tf.Tensor:
        """Returns texts, string [batch], of ids int32 [batch, length].

        `skip_special_tokens`, bool [batch], leaves out `special_ids`.
        """
        message = f"ids must be from 0 to {self._pieces.shape[0] - 1}, the last of the vocabulary"
        are_known = tf.reduce_all((ids >= 0) & (ids < tf.size(self._pieces)))
        with tf.control_dependencies([tf.debugging.Assert(are_known, [message])]):
            ids = tf.identity(ids)
        is_special = tf.reduce_any(ids[:, :, tf.newaxis] == tf.constant(self._special), axis=2)
        present = tf.sequence_mask(lengths, tf.shape(ids)[1]) & ~(is_special & skip_special_tokens[:, tf.newaxis])
        pieces = tf.ragged.boolean_mask(tf.gather(self._pieces, ids), present)
        between, replaced = _JOINED[self._kind]
        texts = tf.strings.reduce_join(pieces, axis=1, separator=between)
        for pattern, text in replaced:
            texts = tf.strings.regex_replace(texts, pattern, text)
        return texts


def special_ids(tokenizer: Tokenizer) -> list[int]:
    """Returns the padding, [CLS], [SEP], mask and unknown tokens' ids."""
    found = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id, tokenizer.mask_id)
    return sorted({number for number in found if number is not None})
