"""Byte-level BPE as a TensorFlow graph: marks the ends of words, then merges bytes by SentencePiece.

Marks are bytes that UTF-8 never has. Read as ISO-8859-1, each byte is a character for a SentencePiece BPE model.
SentencePiece merges any two parts that make a piece, so the model omits pieces that BPE's merges never make.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as text
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.bytes.byte_bpe_file import ByteBPERules
from tfrecords.tokenizers.bytes.cut_tokens import cut_pattern
from tfrecords.tokenizers.in_graph import Characters, stored_once, valid
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, SPACE, re2_class

MARK = b"\xff"
_LETTERS, _NUMBERS, _SPACES = map(re2_class, (LETTER, NUMBER, SPACE))
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTERS}]+| ?[{_NUMBERS}]+| ?[^{_SPACES}{_LETTERS}{_NUMBERS}]+|[{_SPACES}]+"
_LAST_SPACE = f"([{_SPACES}]+)([{_SPACES}][^{_SPACES}])"


def mark_words(texts: tf.Tensor) -> tf.Tensor:
    """Puts marks into strings [batch] after each word, as `byte_words.word_end` splits them."""
    texts = replace(texts, _LAST_SPACE, b"\\1" + MARK + b"\\2")
    return replace(texts, _WORDS, b"\\0" + MARK)


def replace(texts: tf.Tensor, pattern: str, rewrite: bytes) -> tf.Tensor:
    """Like tf.strings.regex_replace, but `rewrite` need not be UTF-8."""
    return tf.raw_ops.StaticRegexReplace(input=texts, pattern=pattern, rewrite=rewrite, replace_global=True)


_OPEN, _CLOSE = b"\xfe", b"\xfd"
_PIECE = model_pb2.ModelProto.SentencePiece


class ByteBPEInGraph(tf.Module):
    """Tokenizes strings [batch] by byte-level BPE to ragged int32 [batch, tokens].

    Custom ops: SentencepieceOp, SentencepieceTokenizeOp, and, if text is composed, NormalizeUTF8 (with offsets,
    NormalizeUTF8WithOffsetsMap). The arguments are attributes of a `ByteBPETokenizer`.
    """

    def __init__(
        self,
        rules: ByteBPERules,
        cut_tokens: list[AddedToken],
        piece_bytes: Sequence[bytes],
        merge_ranks: np.ndarray,
        offset_trims: np.ndarray,
    ):
        super().__init__()
        self._rules, self._cut_tokens = rules, cut_tokens
        model, self._mark = self._model(piece_bytes, merge_ranks)
        self._tokenizer = text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._sizes = stored_once(np.array([len(data) for data in piece_bytes], np.int64))
        self._trims = stored_once(offset_trims.astype(np.int64))

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = valid(texts)
        if self._rules.compose:
            texts = text.normalize_utf8(texts, "NFC")
        return self._tokenize(texts)

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        if self._cut_tokens and self._rules.add_prefix_space:
            raise UserError("offsets are not known in a graph where a blank is put behind tokens that are cut out")
        texts = valid(texts)
        composed = text.normalize_utf8(texts, "NFC") if self._rules.compose else texts
        ids = self._tokenize(composed)
        rows = ids.value_rowids()
        ends = tf.math.cumsum(tf.gather(self._sizes, ids.values))
        starts = ends - tf.gather(self._sizes, ids.values)
        before = tf.gather(tf.concat([starts, [0]], axis=0), tf.gather(ids.row_starts(), rows))
        if self._rules.add_prefix_space:
            before += tf.cast(_lacks_blank(tf.gather(composed, rows)), tf.int64)
        # The prefix has the span of the first character.
        starts, ends = tf.maximum(starts - before, 0), tf.maximum(ends - before, 1)
        if self._rules.compose:
            whole = Characters(composed).widened(rows, starts, ends)
            starts, ends = (_before_composing(texts, ids.with_values(part)) for part in whole)
        starts, ends = Characters(texts).places(rows, starts, ends)
        lead, trail = (tf.gather(self._trims[:, side], ids.values) for side in (0, 1))
        # One blank may be the added prefix.
        if self._rules.keep_first_space:
            lead = tf.where((starts == 0) & (lead == 1), tf.zeros_like(lead), lead)
        starts = tf.minimum(starts + lead, ends)
        ends = tf.maximum(ends - trail, starts)
        return ids, *(ids.with_values(tf.cast(part, tf.int32)) for part in (starts, ends))

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._cut_tokens:
            opened, closed = MARK + _OPEN, _CLOSE + MARK
            texts = replace(texts, cut_pattern(self._cut_tokens), opened + b"\\0" + closed)
            if self._rules.add_prefix_space:
                parts = tf.strings.split(texts, MARK)
                values = _with_blanks(parts.values)
                texts = tf.strings.unsorted_segment_join(values, parts.value_rowids(), parts.nrows(), MARK)
        elif self._rules.add_prefix_space:
            texts = _with_blanks(texts)
        tokens = self._tokenizer.tokenize(tf.strings.unicode_transcode(mark_words(texts), "ISO-8859-1", "UTF-8"))
        is_token = tokens.values != self._mark
        before = tf.math.cumsum(tf.cast(tf.concat([is_token, [False]], axis=0), tf.int64), exclusive=True)
        values = tf.boolean_mask(tokens.values, is_token)
        return tf.RaggedTensor.from_row_splits(values, tf.gather(before, tokens.row_splits), validate=False)

    def _model(self, piece_bytes: Sequence[bytes], merge_ranks: np.ndarray) -> tuple[bytes, int]:
        proto = model_pb2.ModelProto()
        normal = merge_ranks > -2
        cut = {token.id: token.content for token in self._cut_tokens}
        mark = len(piece_bytes)
        for number, (rank, data) in enumerate(zip(merge_ranks, piece_bytes)):
            # One that no text gives may be called anything that is no text.
            name, kind, score = f"\ue000{number}", _PIECE.CONTROL, 0.0
            if number in cut:
                name, kind = self._image(cut[number]), _PIECE.USER_DEFINED
            elif data == MARK:
                mark, name, kind = number, data.decode("latin-1"), _PIECE.NORMAL
            elif normal[number] and not set(data) & set(MARK + _OPEN + _CLOSE):
                name, kind, score = data.decode("latin-1"), _PIECE.NORMAL, -1.0 - rank
            proto.pieces.add(piece=name, score=score, type=kind)
        if mark == len(piece_bytes):
            proto.pieces.add(piece=MARK.decode("latin-1"), score=0.0, type=_PIECE.NORMAL)
        # SentencePiece requires an unknown piece. No text gives it: every byte has a piece. The tokenizer's own may be
        # a string that is cut out, so it is one more.
        proto.pieces.add(piece="\ue000", score=0.0, type=_PIECE.UNKNOWN)
        proto.trainer_spec.model_type = model_pb2.TrainerSpec.BPE
        proto.trainer_spec.unk_id = len(proto.pieces) - 1
        proto.trainer_spec.unk_piece = proto.pieces[-1].piece
        proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
        spec = proto.normalizer_spec
        spec.name = "identity"
        spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
        return proto.SerializeToString(deterministic=True), mark

    def _image(self, content: str) -> str:
        with tf.init_scope():
            return mark_words(tf.constant([_OPEN + content.encode() + _CLOSE])).numpy()[0].decode("latin-1")


def _before_composing(texts: tf.Tensor, places: tf.RaggedTensor) -> tf.Tensor:
    # The operation takes no text and no row that is empty: each gets one more.
    _, back = text.normalize_utf8_with_offsets_map(tf.strings.join([texts, "\n"]), "NFC")
    one = tf.zeros([places.nrows(), 1], tf.int64)
    return text.find_source_offsets(back, tf.concat([places, one], axis=1))[:, :-1].values


def _with_blanks(texts: tf.Tensor) -> tf.Tensor:
    return tf.where(_lacks_blank(texts), tf.strings.join([" ", texts]), texts)


def _lacks_blank(texts: tf.Tensor) -> tf.Tensor:
    first = tf.strings.substr(texts, 0, 1)
    return (first != "") & (first != " ") & (first != _OPEN)
