"""Rows by rules written anew, a token at a time; the framer makes them of all rows at once."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecords.reading.framing import Framer


class Ids:
    pad_id, unk_id, cls_id, sep_id, mask_id = 0, 1, 2, 3, 4
    separators_between, second_segment_id, cls_last = 1, 1, False
    odd_to_longer = mask_keeps_blank = one_segment = False


class RobertaIds(Ids):
    cls_id, pad_id, sep_id, unk_id, mask_id = 0, 1, 2, 3, 4
    separators_between, second_segment_id = 2, 0


class XlnetIds(Ids):
    unk_id, cls_id, sep_id, pad_id, mask_id = 0, 3, 4, 5, 6
    cls_last = True


forms = st.sampled_from([Ids, RobertaIds, XlnetIds])
# An example holds several rows, and takes up to 100 ms of ragged operations.
some = settings(max_examples=20)


def ragged(rows, first=10):
    """Rows of different ids, as many as `rows` says."""
    return tf.RaggedTensor.from_row_lengths(tf.range(first, first + sum(rows)), np.array(rows, np.int64))


def framed(rows):
    return list(zip(rows.input_ids.to_list(), rows.segment_ids.to_list(), strict=True))


def joined(form, first, second):
    middle, segment = [form.sep_id] * form.separators_between, form.second_segment_id
    segments = [0] * (len(first) + len(middle)) + [segment] * (len(second) + 1)
    row = [*first, *middle, *second, form.sep_id]
    return ([*row, form.cls_id], [*segments, 2]) if form.cls_last else ([form.cls_id, *row], [0, *segments])


def cut_in_turn(first, second, room):
    """classifier_utils.py's loop."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


def window_starts(count, room, stride):
    starts = [0]
    while starts[-1] + room < count:
        starts.append(starts[-1] + min(room, stride))
    return starts


pairs_of_sizes = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=8)


@some
@given(forms, pairs_of_sizes, st.integers(5, 40))
def test_single_texts_and_pairs_are_cut_as_the_official_code_does(form, sizes, length):
    first, second = ragged([a for a, _ in sizes]), ragged([b for _, b in sizes], 500)
    framer, texts = Framer(form, length), list(zip(first.to_list(), second.to_list()))
    extra = 2 + form.separators_between
    assert framed(framer.pair(first, second)) == [joined(form, *cut_in_turn(*pair, length - extra)) for pair in texts]
    single = [[*text[: length - 2], form.sep_id] for text, _ in texts]
    single = [
        ([*ids, form.cls_id], [0] * len(ids) + [2]) if form.cls_last else ([form.cls_id, *ids], [0] * (len(ids) + 1))
        for ids in single
    ]
    assert framed(framer.single(first)) == single
    batch = framer.pair(first, second).padded()
    assert batch.input_ids.shape == batch.mask.shape == batch.segment_ids.shape
    assert batch.lengths.numpy().tolist() == [min(a + b + extra, length) for a, b in sizes]


@some
@given(forms, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 150)), max_size=4), st.integers(8, 200))
def test_choices_keep_their_end_and_cut_the_context(form, sizes, length):
    contexts, choices = ragged([a for a, _ in sizes]), ragged([b for _, b in sizes], 500)
    expected, room = [], length - 2 - form.separators_between
    for context, choice in zip(contexts.to_list(), choices.to_list()):
        choice = choice[max(0, len(choice) - min(128, room)) :]
        expected.append(joined(form, context[: room - len(choice)], choice))
    assert framed(Framer(form, length).choices(contexts, choices)) == expected


@some
@given(forms, st.lists(st.lists(st.integers(0, 4), max_size=8), max_size=4), st.integers(5, 20))
def test_words_begin_where_those_before_them_end(form, counts, length):
    pieces = tf.RaggedTensor.from_row_lengths(
        ragged([size for row in counts for size in row]), np.array([len(row) for row in counts], np.int64)
    )
    rows, columns = Framer(form, length).words(pieces)
    for row, words in enumerate(pieces.to_list()):
        ids, first = [], []
        for word in words:
            first.append(len(ids))
            ids += word or [form.unk_id]
        text = ids[: length - 2]
        expected = [*text, form.sep_id, form.cls_id] if form.cls_last else [form.cls_id, *text, form.sep_id]
        assert rows.input_ids[row].numpy().tolist() == expected
        for column, place in zip(columns[row].numpy().tolist(), first, strict=True):
            if place >= length - 2:
                assert column >= length - 1
            else:
                assert column == place + (not form.cls_last)


def test_masks_stand_between_the_parts_of_a_text():
    parts = tf.ragged.constant([[[7, 8], [], [9]], [[5]]], dtype=tf.int32)
    assert Framer(Ids, 9).masked(parts).to_list() == [[7, 8, 4, 4, 9], [5]]


@some
@given(forms, pairs_of_sizes, st.integers(8, 24), st.integers(1, 12))
def test_windows_cover_everything_and_the_best_sees_most(form, sizes, length, stride):
    context, question = ragged([a for a, _ in sizes], 0), ragged([b for _, b in sizes], 500)
    windows = Framer(form, length).windows(question, context, stride, max_query_length=7)
    rows, place, passages = framed(windows.rows), iter(range(len(windows.question))), context.row_starts().numpy()
    for number, (passage, asked) in enumerate(zip(context.to_list(), question.to_list())):
        asked = asked[: min(7, length // 2 - 1 - form.separators_between)]
        before, behind = len(asked) + (not form.cls_last) + form.separators_between, 1 + form.cls_last
        room = length - behind - before
        starts = window_starts(len(passage), room, stride)
        parts = [passage[start : start + room] for start in starts]
        around = [
            {start + at: (100 * min(at, len(part) - 1 - at) + len(part), -n) for at in range(len(part))}
            for n, (start, part) in enumerate(zip(starts, parts))
        ]
        for start, part, own in zip(starts, parts, around):
            row = next(place)
            assert rows[row] == joined(form, asked, part)
            layout = (windows.question, windows.first_column, windows.first_token, windows.size)
            assert [int(values[row]) for values in layout] == [number, before, start, len(part)]
            tokens = [passages[number] + start + at for at in range(len(part))]
            assert windows.token[row].numpy().tolist() == [-1] * before + tokens + [-1] * behind
            best = [all(own[at] >= other[at] for other in around if at in other) for at in sorted(own)]
            assert windows.is_best[row].numpy().tolist() == [False] * before + best + [False] * behind
    assert next(place, None) is None
    batch, token, is_best = windows.padded()
    assert batch.mask.shape == token.shape == is_best.shape


def test_no_rows_are_no_rows():
    framer, none = Framer(Ids, 12), ragged([])
    for rows in (framer.single(none), framer.pair(none, none), framer.windows(none, none, 3, 4).rows):
        assert rows.padded().input_ids.shape == (0, 1)


def test_a_graph_makes_the_rows_that_eager_calls_make():
    framer, first, second = Framer(RobertaIds, 9), ragged([7, 0, 1]), ragged([3, 9, 0], 500)
    spec = tf.RaggedTensorSpec([None, None], tf.int32)
    for rows in (framer.pair, lambda *texts: framer.windows(*texts, doc_stride=3, max_query_length=5)):
        graph = tf.function(lambda *texts, rows=rows: tf.nest.flatten(rows(*texts).padded()), [spec, spec])
        for expected, values in zip(tf.nest.flatten(rows(first, second).padded()), graph(first, second), strict=True):
            np.testing.assert_array_equal(expected, values)
