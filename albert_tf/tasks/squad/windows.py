"""Questions and passages as rows: [CLS] question [SEP] window [SEP], windows sliding over what is too long for one."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.rows import Rows, encode
from albert_tf.tasks.squad.data import SquadExample
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

DOC_STRIDE = 128
MAX_QUERY_LENGTH = 64
FEATURES = ("input_ids", "input_mask", "segment_ids", "p_mask", "start_mask")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanRows(Rows):
    """Rows that are windows, and the way back from their tokens to text.

    Attributes:
        example: number of the example of each row, int32 [rows], ascending.
        window: number of the row among its example's windows, int32 [rows].
        first_column: of the window's tokens in the row, int32 [rows].
        first_token: of the passage that is in the window, int32 [rows].
        size: tokens of the passage in the window, int32 [rows].
        offsets: for each example int32 [passage tokens, 2]: where each comes from, in characters of the context.
        owner: for each example int32 [passage tokens]: the window in which a token sees most on both sides.
        unaligned: labelled examples whose answer is nothing that the tokenizer keeps, such as a control character.
    """

    example: np.ndarray
    window: np.ndarray
    first_column: np.ndarray
    first_token: np.ndarray
    size: np.ndarray
    offsets: list[np.ndarray]
    owner: list[np.ndarray]
    unaligned: int = 0


def make_rows(
    examples: Sequence[SquadExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    training: bool,
    doc_stride: int = DOC_STRIDE,
    max_query_length: int = MAX_QUERY_LENGTH,
) -> SpanRows:
    """All windows of all examples, labelled by the first answer where `training`.

    A window that does not hold the whole answer is labelled impossible with start = end = 0, as
    google-research/albert squad_utils.py:446-468 does.

    Raises:
        UserError: rows too short for a question and a passage, or an answer_start that does not point at its answer.
    """
    if max_seq_length < 8:
        raise UserError(f"--max_seq_length={max_seq_length} leaves no room for a passage; give 8 at least")
    contexts, ids, offsets = _encode_contexts(examples, tokenizer)
    # At least half of a row is left for the passage.
    longest = min(max_query_length, max_seq_length // 2 - 2)
    questions = [question[:longest] for question in encode(tokenizer, [one.question for one in examples])]
    layouts: dict[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    patterns = _Patterns(max_seq_length)
    tokens: dict[str, list[np.ndarray]] = {name: [] for name in FEATURES}
    places: list[tuple[int, int, int, int, int]] = []
    owner = []
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    for number, (context, question) in enumerate(zip(contexts, questions)):
        passage = ids[context]
        key = (len(passage), max_seq_length - len(question) - 3)
        if key not in layouts:
            layouts[key] = window_layout(*key, doc_stride)
        starts, sizes, owners = layouts[key]
        owner.append(owners)
        for window, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist())):
            tokens["input_ids"].append(np.concatenate([cls, question, sep, passage[start : start + size], sep]))
            for name, pattern in patterns.of(len(question), owners, window, start, size).items():
                tokens[name].append(pattern)
            places.append((number, window, len(question) + 2, start, size))
    example, window, first_column, first_token, size = np.array(places, np.int32).T
    rows = SpanRows(
        tokens, {}, tokenizer.pad_id, example=example, window=window, first_column=first_column,
        first_token=first_token, size=size, offsets=[offsets[context] for context in contexts], owner=owner,
    )  # fmt: skip
    return _label(rows, examples) if training else rows


def window_layout(count: int, room: int, doc_stride: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows over `count` tokens, at most `room` of them each: first tokens, sizes, and each token's best window.

    The best window is where the smaller of a token's left and right contexts, plus a hundredth of the window's size, is
    greatest; the first of equal ones (squad_utils.py of google-research/albert, `_check_is_max_context`).
    """
    starts = [0]
    while starts[-1] + room < count:
        starts.append(starts[-1] + min(room, doc_stride))
    first = np.array(starts, np.int32)
    sizes = np.minimum(room, count - first).astype(np.int32)
    left = np.arange(count) - first[:, None]
    right = sizes[:, None] - 1 - left
    # In hundredths, so that equal is equal.
    context = np.where((left >= 0) & (right >= 0), 100 * np.minimum(left, right) + sizes[:, None], -1)
    return first, sizes, context.argmax(axis=0).astype(np.int32)


def token_span(offsets: np.ndarray, begin: int, end: int) -> tuple[int, int] | None:
    """First and last token that hold anything of the characters [begin, end); None where no token does."""
    first = int(np.searchsorted(offsets[:, 1], begin, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def text_of(context: str, offsets: np.ndarray, first: int, last: int) -> str:
    """The raw text of the tokens `first` to `last`, without white space around it."""
    return context[offsets[first, 0] : offsets[last, 1]].strip()


def _encode_contexts(
    examples: Sequence[SquadExample], tokenizer: Tokenizer
) -> tuple[list[int], list[np.ndarray], list[np.ndarray]]:
    """Each example's context by number; ids and offsets of each different context."""
    numbers: dict[str, int] = {}
    contexts = [numbers.setdefault(example.context, len(numbers)) for example in examples]
    ids, splits, offsets = tokenizer.encode_with_offsets(list(numbers))
    return contexts, np.split(ids, splits[1:-1]), np.split(offsets, splits[1:-1])


class _Patterns:
    """The features that depend on lengths only: slices of one array, or made once for all rows alike."""

    def __init__(self, max_seq_length: int):
        self._limit = max_seq_length
        self._steps = np.repeat(np.array([0, 1], np.int32), max_seq_length)
        self._masks: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}

    def of(self, question: int, owners: np.ndarray, window: int, start: int, size: int) -> dict[str, np.ndarray]:
        """p_mask is 1 where no answer may be: everywhere but [CLS] and the passage (squad_utils.py:389-435);
        start_mask where none that is found here may start: also at [CLS] and what another window shows better."""
        length = question + size + 3
        key = (question, len(owners), window)
        if key not in self._masks:
            p_mask, start_mask = np.ones((2, length), np.int32)
            passage = slice(question + 2, question + 2 + size)
            p_mask[0] = p_mask[passage] = 0
            start_mask[passage] = owners[start : start + size] != window
            self._masks[key] = p_mask, start_mask
        p_mask, start_mask = self._masks[key]
        first = self._limit - question - 2
        segments = self._steps[first : first + length]
        input_mask = self._steps[self._limit :][:length]
        return {"input_mask": input_mask, "segment_ids": segments, "p_mask": p_mask, "start_mask": start_mask}


def _label(rows: SpanRows, examples: Sequence[SquadExample]) -> SpanRows:
    spans = [_answer_span(example, offsets) for example, offsets in zip(examples, rows.offsets)]
    unaligned = sum(span is None and bool(example.answers) for span, example in zip(spans, examples))
    first, last = np.array([span or (-1, -1) for span in spans], np.int32)[rows.example].T
    inside = (first >= rows.first_token) & (last < rows.first_token + rows.size) & (first >= 0)
    shift = rows.first_column - rows.first_token
    values = {
        "start_positions": np.where(inside, first + shift, 0).astype(np.int32),
        "end_positions": np.where(inside, last + shift, 0).astype(np.int32),
        "is_impossible": (~inside).astype(np.int32),
    }
    return dataclasses.replace(rows, values=values, unaligned=unaligned)


def _answer_span(example: SquadExample, offsets: np.ndarray) -> tuple[int, int] | None:
    if not example.answers:
        return None
    answer = example.answers[0]
    text, start = answer.text, answer.start
    if start is None:
        raise UserError(f"question '{example.id}' has no answer_start; training needs it")
    if start < 0 or example.context[start : start + len(text)] != text:
        there = example.context[max(start, 0) : max(start, 0) + len(text)]
        raise UserError(
            f"question '{example.id}': answer_start {start} points at {there!r}, not at {text!r}; "
            "mend it, or name the question in --exclude_ids"
        )
    begin = start + len(text) - len(text.lstrip())
    return token_span(offsets, begin, begin + len(text.strip()))
