"""Turns texts into rows of token ids, for each kind of answer."""

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.lite.description import Description, TokenizerRules
from serving.lite.rows import Framer, Row
from tfrecords.answers.texts import Truncation, no_mask
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.by_library import (
    Blanks,
    SentencePieceLibrary,
    TokenizersLibrary,
    check_ids,
    lowered,
    places_before_lowering,
    tokenize_beginnings,
)


class LiteTokenizer:
    """The tokenizer of a version; its ids are those of the tokenizer that the version was written from.

    It has the attributes of its rules, as `tfrecords.tokenizers.base.Tokenizer` has them.
    """

    cls_last = False

    def __init__(self, rules: TokenizerRules, content: bytes):
        self.rules = rules
        try:
            self._read(content)
        except Exception as error:
            # The library `tokenizers` raises nothing narrower.
            raise UserError(f"'{rules.file}' cannot be read: {str(error)[:200]}; export the model again") from error

    def _read(self, content: bytes) -> None:
        # A process loads one of the libraries: the other would cost it 10 MB.
        if self.rules.kind == "sentencepiece":
            from sentencepiece import SentencePieceProcessor

            processor = SentencePieceProcessor(model_proto=content)
            parts = {int(number): ids for number, ids in self.rules.parts.items()}
            blanks = Blanks(self.rules.no_blank_before, self.rules.last_blank)
            self._library: Any = SentencePieceLibrary(processor, parts, blanks)
            self._piece = processor.id_to_piece
        else:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_str(content.decode())
            self._library, self._piece = (
                TokenizersLibrary(tokenizer, self.rules.kind == "wordpiece"),
                tokenizer.id_to_token,
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rules, name)

    def id_to_piece(self, token_id: int) -> str:
        return self._piece(token_id) or f"[unused{token_id}]"

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts, int32, and their row splits, int64 [texts + 1]."""
        return self._library.encode_batch(self._as_read(texts))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the results of `encode_batch`, and each token's characters in its text, int32 [tokens, 2]."""
        ids, splits, offsets = self._library.encode_with_offsets(self._as_read(texts))
        return ids, splits, places_before_lowering(texts, splits, offsets) if self.rules.lowers_first else offsets

    def _as_read(self, texts: Sequence[str]) -> Sequence[str]:
        return lowered(texts) if self.rules.lowers_first else texts

    def check_ids(self, ids: np.ndarray) -> None:
        """Raises UserError for an id without a row in the embedding table."""
        check_ids(ids, self.rules.table_rows, self.id_to_piece)


# Of a text that is cut at its beginning, so many for each token of a row are tokenized.
_MOST_CHARACTERS = 64


class TextRows(NamedTuple):
    """Rows of texts; `heads`: of words, the column of each one's first token, without those cut off."""

    rows: list[Row]
    truncation: Truncation
    heads: list[np.ndarray]


class WindowRows(NamedTuple):
    """Rows that are windows of contexts; see `tfrecords.answers.spans.Windows`."""

    rows: list[Row]
    truncation: Truncation
    example: np.ndarray
    first_column: np.ndarray
    first_token: np.ndarray
    size: np.ndarray
    null_column: np.ndarray
    offsets: list[np.ndarray]


class RowMaker:
    """Makes the rows of a version's file from texts, as `albert_tf.load` does for its models."""

    def __init__(self, about: Description, tokenizer: LiteTokenizer):
        self.tokenizer, self._limits = tokenizer, about.limits
        self.max_seq_length = about.limits.max_seq_length
        self._framer = Framer(tokenizer.rules, self.max_seq_length)

    def texts(self, *columns: Sequence[str], left: bool = False) -> TextRows:
        """Returns a row for each text, or for each pair of two columns; `left` cuts long texts at the beginning."""
        if left:
            # What comes long before is cut off, whatever its tokens are.
            columns = [[text[-_MOST_CHARACTERS * self.max_seq_length :] for text in texts] for texts in columns]
        tokens = list(zip(*(self._ids(texts, whole=left) for texts in columns)))
        return self._counted([self._framer.frame(*texts, left=left) for texts in tokens], tokens, len(columns))

    def choices(self, contexts: Sequence[str], choices: Sequence[str]) -> TextRows:
        """Returns a row for each context with a choice, which has the question in it."""
        tokens = list(zip(self._ids(contexts), self._ids(choices)))
        return self._counted([self._framer.choice(*texts) for texts in tokens], tokens, 2)

    def words(self, texts: Sequence[Sequence[str]]) -> TextRows:
        """Returns a row for each list of words."""
        prefix = self.tokenizer.rules.word_prefix
        # A word has a token at least; one that brings its blank gets no second one.
        words = [[word if word[:1] in ("", prefix) else prefix + word for word in text] for text in texts]
        ends = itertools.accumulate(map(len, words), initial=0)
        tokens = self._ids([word for text in words for word in text])
        pieces = [tokens[start:end] for start, end in itertools.pairwise(ends)]
        found = [self._framer.words(one) for one in pieces]
        whole = [[np.zeros(max(len(word), 1)) for word in text] for text in pieces]
        return self._counted([row for row, _ in found], whole, 1)._replace(heads=[heads for _, heads in found])

    def masked(self, texts: Sequence[str]) -> TextRows:
        """Returns a row for each text with masked words; `positions` are their columns."""
        rules, mask = self.tokenizer.rules, self.tokenizer.id_to_piece(self.tokenizer.rules.mask_id)
        takes_blanks = rules.kind == "bpe" and not rules.mask_keeps_blank
        pattern = (r"\s*" if takes_blanks else "") + re.escape(mask)
        parts = [re.split(pattern, text) for text in texts]
        tokens = iter(self._ids([part for text in parts for part in text]))
        between = [np.array([rules.mask_id], np.int32)]
        whole = [[part for _ in text for part in (next(tokens), *between)][:-1] for text in parts]
        rows = [self._framer.frame(np.concatenate(text)) for text in whole]
        for text, row in zip(texts, rows):
            row["positions"] = np.flatnonzero(row["input_ids"] == rules.mask_id).astype(np.int32)
            if not len(row["positions"]):
                raise no_mask(text, mask, self.max_seq_length)
        return self._counted(rows, whole, 1)

    def windows(self, pairs: Sequence[tuple[str, str]]) -> WindowRows:
        """Returns rows for each question and windows of its context.

        Further inputs are bool [length]: `allowed` where answers, or [CLS], may be; `may_start` where they may start.
        """
        numbers: dict[str, int] = {}
        of_pair = [numbers.setdefault(context, len(numbers)) for _, context in pairs]
        ids, splits, offsets = self.tokenizer.encode_with_offsets(list(numbers))
        contexts, places = self._split(ids, splits), [offsets[a:b] for a, b in itertools.pairwise(splits)]
        questions = self._ids([question for question, _ in pairs])
        limits, rows, parts = self._limits, list[Row](), list[tuple[int, int, int, int]]()
        for number, (question, context) in enumerate(zip(questions, of_pair)):
            for window in self._framer.windows(question, contexts[context], limits.doc_stride, limits.max_query_length):
                allowed, may_start = np.zeros((2, len(window.row["input_ids"])), bool)
                own = slice(window.first_column, window.first_column + window.size)
                allowed[0] = allowed[own] = True
                may_start[own] = window.is_best
                rows.append(window.row | {"allowed": allowed, "may_start": may_start})
                parts.append((number, window.first_column, window.first_token, window.size))
        room = self._framer.question_room(limits.max_query_length)
        asked, read = np.array([(len(q), len(contexts[c])) for q, c in zip(questions, of_pair)]).reshape(-1, 2).T
        truncation = Truncation.of(asked + read, np.minimum(asked, room) + read)
        example, column, token, size = np.array(parts, np.int32).reshape(-1, 4).T
        of_questions = [places[context] for context in of_pair]
        return WindowRows(rows, truncation, example, column, token, size, np.zeros_like(example), of_questions)

    def _counted(self, rows: list[Row], tokens: Sequence[Sequence[np.ndarray]], texts: int) -> TextRows:
        whole = np.array([sum(map(len, row)) for row in tokens], np.int64)
        kept = np.array([len(row["input_ids"]) for row in rows], np.int64) - self._framer.special_tokens(texts)
        return TextRows(rows, Truncation.of(whole, kept), [])

    def _ids(self, texts: Sequence[str], whole: bool = False) -> list[np.ndarray]:
        encode = self.tokenizer.encode_batch
        return self._split(*(encode(texts) if whole else tokenize_beginnings(encode, texts, self.max_seq_length)))

    def _split(self, ids: np.ndarray, splits: np.ndarray) -> list[np.ndarray]:
        self.tokenizer.check_ids(ids)
        return [ids[start:end] for start, end in itertools.pairwise(splits)]
