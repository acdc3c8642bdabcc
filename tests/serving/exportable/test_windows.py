"""Windows over long contexts lie, and own their tokens, as those of the SQuAD task."""

import pytest
import tensorflow as tf

from albert_tf.tasks.squad.windows import window_layout
from tfrecords.framing import Framer, make_windows


@pytest.mark.parametrize("stride", [3, 5, 50])
def test_every_token_belongs_to_the_window_of_the_squad_task(tokenizer, stride):
    sizes, questions = [0, 1, 13, 14, 15, 40, 41, 42], [1, 8, 2, 7, 7, 7, 4, 1]
    context = tf.RaggedTensor.from_row_lengths(tf.range(sum(sizes)) % 50 + 5, sizes)
    question = tf.RaggedTensor.from_row_lengths(tf.fill([sum(questions)], 9), questions)
    windows = make_windows(Framer(tokenizer, 24), question, context, stride)
    for row, (size, asked) in enumerate(zip(sizes, questions)):
        starts, lengths, owners = window_layout(size, 21 - asked, stride)
        own = tf.where(windows.row == row)[:, 0]
        assert len(own) == len(starts)
        for number, window in enumerate(own.numpy()):
            inside = windows.is_context[window].numpy()
            tokens = windows.token[window].numpy()[inside] - sum(sizes[:row])
            assert tokens.tolist() == list(range(starts[number], starts[number] + lengths[number]))
            assert windows.rows.lengths[window] == asked + lengths[number] + 3
            best = windows.is_best[window].numpy()[inside]
            assert best.tolist() == [owners[token] == number for token in tokens]
