"""Questions and passages as labelled rows."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.tasks.rows import FeatureRows, features_of, on_host
from albert_tf.tasks.squad.data import SquadExample, check_places
from tfrecords.answers.spans import edges
from tfrecords.answers.texts import Truncation
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import Framer, encode
from tfrecords.tokenizers.base import Tokenizer

DOC_STRIDE = 128
MAX_QUERY_LENGTH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanRows(FeatureRows):
    """Rows that are windows, with the mapping from their tokens back to text.

    Attributes:
        example: index of each row's example, ascending; this and the next four are int32 [rows].
        first_token: index of the window's first token in the passage.
        first_column: that token's column in the row.
        size: number of passage tokens in the window.
        null_column: column of [CLS].
        offsets: for each example int32 [passage tokens, 2]: each token's characters, from begin to before end.
        unaligned: number of labelled examples whose answer has no token.
    """

    example: np.ndarray
    first_column: np.ndarray
    first_token: np.ndarray
    size: np.ndarray
    null_column: np.ndarray
    offsets: list[np.ndarray]
    unaligned: int = 0


@on_host
def make_rows(
    examples: Sequence[SquadExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    training: bool,
    doc_stride: int = DOC_STRIDE,
    max_query_length: int = MAX_QUERY_LENGTH,
) -> SpanRows:
    """Splits examples into windows, one per row, labelled by the first answer if `training`.

    `p_mask` is 1 except at [CLS] and the passage (squad_utils.py:389-435 of google-research/albert); `start_mask` is
    also 1 at [CLS], and at tokens with more context in another window. A window without the whole answer is labelled
    impossible (squad_utils.py:446-468).
    """
    if max_seq_length < 8:
        raise UserError(f"--max_seq_length={max_seq_length} leaves no room for a passage; give 8 at least")
    numbers: dict[str, int] = {}
    context = [numbers.setdefault(example.context, len(numbers)) for example in examples]
    ids, splits, offsets = tokenizer.encode_with_offsets(list(numbers))
    tokenizer.check_ids(ids)
    passages = tf.gather(tf.RaggedTensor.from_row_splits(ids, splits, validate=False), context)
    questions = encode(tokenizer, [example.question for example in examples])
    framer = Framer(tokenizer, max_seq_length)
    windows = framer.windows(questions, passages, doc_stride, max_query_length)
    asked, read = questions.row_lengths().numpy(), passages.row_lengths().numpy()
    # The windows together hold the whole passage.
    kept = np.minimum(asked, framer.question_room(max_query_length)) + read
    p_mask = (windows.token.values.numpy() < 0).astype(np.int32)
    null_column = windows.rows.input_ids.row_lengths().numpy().astype(np.int32) - 1
    null_column *= tokenizer.cls_last
    p_mask[windows.token.row_starts().numpy() + null_column] = 0
    start_mask = 1 - windows.is_best.values.numpy().astype(np.int32)
    of_context = np.split(offsets, splits[1:-1])
    rows = SpanRows(
        features_of(windows.rows, p_mask=p_mask, start_mask=start_mask),
        {},
        tokenizer.pad_id,
        example=windows.question.numpy(),
        first_column=windows.first_column.numpy(),
        first_token=windows.first_token.numpy(),
        size=windows.size.numpy(),
        null_column=null_column,
        offsets=[of_context[number] for number in context],
        truncation=Truncation.of(asked + read, kept),
    )
    return _label(rows, examples) if training else rows


def token_span(offsets: np.ndarray, begin: int, end: int) -> tuple[int, int] | None:
    """Returns the first and last token that overlap the characters [begin, end), or None."""
    first = int(np.searchsorted(offsets[:, 1], begin, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def _label(rows: SpanRows, examples: Sequence[SquadExample]) -> SpanRows:
    check_places(examples)
    spans = [_answer_span(example, offsets) for example, offsets in zip(examples, rows.offsets)]
    unaligned = sum(span is None and bool(example.answers) for span, example in zip(spans, examples))
    first, last = np.array([span or (-1, -1) for span in spans], np.int32)[rows.example].T
    inside = (first >= rows.first_token) & (last < rows.first_token + rows.size) & (first >= 0)
    shift = rows.first_column - rows.first_token
    values = {
        "start_positions": np.where(inside, first + shift, rows.null_column).astype(np.int32),
        "end_positions": np.where(inside, last + shift, rows.null_column).astype(np.int32),
        "is_impossible": (~inside).astype(np.int32),
    }
    return dataclasses.replace(rows, values=values, unaligned=unaligned)


def _answer_span(example: SquadExample, offsets: np.ndarray) -> tuple[int, int] | None:
    if not example.answers:
        return None
    answer = example.answers[0]
    text = answer.text.strip(edges())
    begin = answer.start + answer.text.index(text)
    return token_span(offsets, begin, begin + len(text)) if text else None
