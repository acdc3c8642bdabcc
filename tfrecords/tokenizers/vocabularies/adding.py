import collections
import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.bytes.byte_bpe_file import as_tokenizer_json, byte_characters
from tfrecords.tokenizers.vocabularies.comparing import merged
from tfrecords.tokenizers.words import is_spaced_letter

_UNUSED = re.compile(r"\[unused\d+\]")
# How much a new SentencePiece piece scores above its former pieces, for each of its characters. It is so little that
# other words are segmented as before; of two new pieces, the longer wins.
_MARGIN = 0.01
# Below the rarest piece, as in unigram_model.cc.
_UNKNOWN_PENALTY = 10.0
# Words in a text that are less frequent are not worth a piece.
_LEAST_FREQUENCY = 2
_WORD = re.compile(r"\b[^\W\d_]+\b")


def add_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """Returns a tokenizer with more words, each a single piece after a blank or at the start of a text.

    Former ids stay, but in WordPiece, new words first replace `[unusedN]` pieces. In byte-level BPE, a word is one
    piece only after a blank, and the shorter pieces that merge to it are added too.

    Raises UserError for SentencePiece models that are not unigram ones, and for words that are always split.

    >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "film"]
    >>> larger = add_words(WordPieceTokenizer("\\n".join(pieces).encode()), ["Hepatitis", "film", "fever"])
    >>> larger.pieces[5:]
    ['hepatitis', 'film', 'fever']
    """
    words = list(dict.fromkeys(words))
    lengths = _lengths(tokenizer, words)
    new = [word for word, length in zip(words, lengths) if length != 1 and len(word.split()) == 1]
    larger = _ADDERS[tokenizer.kind](tokenizer, new)
    parted = [word for word, length in zip(words, _lengths(larger, words)) if length != 1]
    if parted:
        raise UserError(
            f"the tokenizer parts {len(parted)} of the words, whatever its pieces are: "
            f"{', '.join(map(repr, parted[:5]))}{', ...' * (len(parted) > 5)}; leave out those with white space, "
            "punctuation or digits inside, or add their parts"
        )
    return larger


def _lengths(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    ids, splits = tokenizer.encode_batch([tokenizer.word_prefix + word for word in words])
    rows = (ids[begin:end] for begin, end in itertools.pairwise(splits))
    return [0 if tokenizer.unk_id in row else len(row) for row in rows]


def _add_to_wordpiece(tokenizer: Any, words: list[str]) -> Tokenizer:
    pieces = list(tokenizer.pieces)
    normal = map(tokenizer.normalized, words)
    new = [word for word in dict.fromkeys(normal) if word and " " not in word and word not in pieces]
    unused = [number for number, piece in enumerate(pieces) if _UNUSED.fullmatch(piece)]
    for number, word in zip(unused, new):
        pieces[number] = word
    pieces += new[len(unused) :]
    return tokenizer.with_pieces(pieces)


def _add_to_sentencepiece(tokenizer: Any, words: list[str]) -> Tokenizer:
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    if proto.trainer_spec.model_type != model_pb2.TrainerSpec.UNIGRAM:
        raise UserError("words are added to SentencePiece models of the kind unigram alone; this is another")
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.vocabulary)
    scores = [piece.score for piece in proto.pieces]
    scores[tokenizer.unk_id] = min(scores) - _UNKNOWN_PENALTY
    known = {piece.piece: piece for piece in proto.pieces}
    for word in words:
        name = processor.normalize(word)
        if name not in known:
            known[name] = proto.pieces.add(piece=name)
        # An existing piece may lose to others: its score rises too.
        former = sum(scores[number] for number in processor.encode(word))
        known[name].score = former + _MARGIN * len(name)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return tokenizer.with_vocabulary(proto.SerializeToString(deterministic=True))


def _add_to_bytes(tokenizer: Any, words: list[str]) -> Tokenizer:
    rules, characters = tokenizer.rules, byte_characters()
    ids, merges = dict(rules.ids), list(rules.merges)
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    last = max(ids.values())
    for word in words:
        text = f" {unicodedata.normalize('NFC', word) if rules.compose else word}".encode()
        # New merges come after all former ones, so that other words keep their pieces.
        first, *rest = merged([characters[byte] for byte in text], ranks)
        for piece in rest:
            ranks[first, piece] = len(merges)
            merges.append((first, piece))
            first += piece
            if first not in ids:
                last += 1
                ids[first] = last
    return tokenizer.with_vocabulary(as_tokenizer_json(dataclasses.replace(rules, ids=ids, merges=merges)))


_ADDERS: dict[str, Callable[[Any, list[str]], Tokenizer]] = {
    "wordpiece": _add_to_wordpiece,
    "sentencepiece": _add_to_sentencepiece,
    "bpe": _add_to_bytes,
}


def frequent_words(tokenizer: Tokenizer, lines: Iterable[str], count: int) -> list[str]:
    """Finds the `count` words of a text that would save the most tokens as single pieces, best first.

    Only words of letters, in scripts with white space between words, are considered.
    """
    found = collections.Counter(word for line in lines for word in _WORD.findall(line))
    words = [word for word in found if all(map(is_spaced_letter, word))]
    ids, splits = tokenizer.encode_batch([tokenizer.word_prefix + word for word in words])
    times, saved = collections.Counter[str](), collections.Counter[str]()
    for word, (begin, end) in zip(words, itertools.pairwise(splits.tolist())):
        normal = tokenizer.decode(ids[begin:end].tolist()).strip()
        if end - begin > 1 and normal.isalpha():
            times[normal] += found[word]
            saved[normal] += found[word] * (end - begin - 1)
    kept = [word for word in saved if times[word] >= _LEAST_FREQUENCY]
    return sorted(kept, key=lambda word: (-saved[word], word))[:count]
