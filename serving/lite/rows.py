"""Builds rows of token ids as `tfrecords.reading.framing` does, one at a time in numpy."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.lite.description import Answer, TokenizerRules
from tfrecords.answers.spans import IMPOSSIBLE

# google-research/albert:run_race.py, --max_qa_length.
_MAX_CHOICE_LENGTH = 128
Row = dict[str, np.ndarray]


class Window(NamedTuple):
    """A row with a part of a context.

    first_token, size: the part in the context. first_column: its place in the row. is_best: whether each of its tokens
    has more context here than in other windows.
    """

    row: Row
    first_token: int
    size: int
    first_column: int
    is_best: np.ndarray


class Framer:
    """Builds rows of at most `max_seq_length` tokens from the ids of texts."""

    def __init__(self, rules: TokenizerRules, max_seq_length: int):
        self.rules, self.max_seq_length = rules, max_seq_length
        self._between = rules.separators_between

    def frame(self, *texts: np.ndarray, left: bool = False) -> Row:
        """Returns a row of one text, cut at its end, or of two, of which the longer is cut; `left` cuts beginnings."""
        if len(texts) == 1:
            return self._row(_some(texts[0], self.max_seq_length - 2, left))
        first, second = texts
        room = self._pair_room
        half = room // 2 + (room % 2 if self.rules.odd_to_longer and len(second) >= len(first) else 0)
        size = min(len(second), max(room - len(first), half))
        return self._row(_some(first, room - size, left), _some(second, size, left))

    def choice(self, context: np.ndarray, choice: np.ndarray) -> Row:
        """Returns a row of a context, cut at its end, and the last tokens of a choice."""
        room = self._pair_room
        choice = choice[-min(_MAX_CHOICE_LENGTH, room) :]
        return self._row(context[: room - len(choice)], choice)

    def words(self, words: Sequence[np.ndarray]) -> tuple[Row, np.ndarray]:
        """Returns a row of words, and the column of each word's first token, without those cut off."""
        pieces = [word if len(word) else np.array([self.rules.unk_id], np.int32) for word in words]
        columns = 1 + np.cumsum([0, *map(len, pieces)])[:-1]
        return self.frame(np.concatenate([np.zeros(0, np.int32), *pieces])), columns[columns < self.max_seq_length - 1]

    def windows(
        self, question: np.ndarray, context: np.ndarray, doc_stride: int, max_query_length: int
    ) -> Iterator[Window]:
        """Yields windows of a context `doc_stride` tokens apart, or less if a long question leaves less room."""
        question = question[: self.question_room(max_query_length)]
        first_column = 1 + len(question) + self._between
        room = self.max_seq_length - 1 - first_column
        stride = min(doc_stride, room)
        starts = np.arange(max(-((room - len(context)) // stride), 0) + 1) * stride
        parts = [slice(start, min(start + room, len(context))) for start in starts.tolist()]
        score, owner = np.full((2, len(context)), -1)
        for number, part in enumerate(parts):
            size = part.stop - part.start
            place = np.arange(size)
            # Hundredths keep ties exact; earlier windows are preferred.
            here = np.minimum(place, size - 1 - place) * 100 + size
            is_better = here > score[part]
            score[part] = np.where(is_better, here, score[part])
            owner[part] = np.where(is_better, number, owner[part])
        for number, part in enumerate(parts):
            row = self._row(question, context[part])
            yield Window(row, part.start, part.stop - part.start, first_column, owner[part] == number)

    def question_room(self, max_query_length: int) -> int:
        """Returns the maximum question length in tokens."""
        return min(max_query_length, self.max_seq_length // 2 - 1 - self._between)

    def special_tokens(self, texts: int) -> int:
        return 2 + (texts - 1) * self._between

    @property
    def _pair_room(self) -> int:
        return self.max_seq_length - self.special_tokens(2)

    def _row(self, first: np.ndarray, second: np.ndarray | None = None) -> Row:
        rules = self.rules
        parts = [[rules.cls_id], first, [rules.sep_id]]
        if second is not None:
            parts[2:] = [[rules.sep_id] * self._between, second, [rules.sep_id]]
        ids = np.concatenate(parts).astype(np.int32)
        segments = np.zeros(len(ids), np.int32)
        if second is not None:
            segments[1 + len(first) + self._between :] = rules.second_segment_id
        return {"input_ids": ids, "segment_ids": segments, "lengths": np.array(len(ids), np.int32)}


def _some(ids: np.ndarray, count: int, last: bool) -> np.ndarray:
    return ids[max(len(ids) - count, 0) :] if last else ids[:count]


def span_outputs(answer: Answer, row: Row, found: Row) -> dict[str, Any]:
    """Returns the outputs of AlbertSpanPredictor for a window; `row` is of `RowMaker.windows`."""
    if answer.joint:
        starts, index, ends = found["start_log_probs"], found["start_index"], found["end_log_probs"]
        null = {"answerable_logits": found["no_answer_score"]}
    else:
        starts, ends = (_log_softmax(np.where(row["allowed"], logits, IMPOSSIBLE)) for logits in found["logits"].T)
        index = _best(np.where(row["may_start"], starts, IMPOSSIBLE), answer.start_top)
        null = {"start_log_probs": starts, "end_log_probs": ends}
    first, place = index[:, np.newaxis], np.arange(len(starts))
    is_legal = (place >= first) & (place < first + answer.max_answer_length) & row["may_start"][first]
    scores = np.where(is_legal, starts[first] + ends, IMPOSSIBLE).ravel()
    best = _best(scores, answer.start_top * answer.end_top)
    spans = {"start_index": index[best // len(starts)], "end_index": best % len(starts), "score": scores[best]}
    return {"spans": spans} | null


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:count]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
