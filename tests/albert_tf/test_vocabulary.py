"""Models of another vocabulary: rows of pieces in common stay, and others are means of former rows."""

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertPretrainer
from albert_tf.checkpoints.resizing import keep_pieces
from albert_tf.models.permutation import XlnetPretrainer
from tests.albert_tf.tiny import randomise, small, values_of
from tests.refusals import refused

WIDE = {"embedding_size": 16, "sharing": "none"}
MODELS = {
    "ALBERT": (AlbertPretrainer, {}),
    "BERT": (AlbertPretrainer, WIDE),
    "RoBERTa": (AlbertPretrainer, WIDE | {"position_offset": 2, "type_vocab_size": 1}),
    "XLNet": (XlnetPretrainer, WIDE | {"position_type": "relative", "type_vocab_size": 2}),
}


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_kept_or_means(name):
    kind, changes = MODELS[name]
    model = kind(small(vocab_size=20, **changes))
    randomise(model)
    other = keep_pieces(model, [7, 3, 4, 5, 19], [0, 1, 4, 5])
    before, after = map(values_of, (model, other))
    by_piece = {name for name, value in before.items() if 20 in value.shape}
    assert by_piece == {"embeddings/word_embeddings", "masked_lm/output_bias"}
    assert other.encoder.config == model.encoder.config.replace(vocab_size=3)
    for variable, value in before.items():
        if variable in by_piece:
            assert_array_equal(after[variable][[0, 2]], value[[7, 19]])
            assert_allclose(after[variable][1], value[3:6].mean(axis=0), rtol=1e-6)
        else:
            assert_array_equal(after[variable], value, err_msg=variable)


def test_pieces_that_are_not_there_are_refused():
    model = AlbertPretrainer(small(vocab_size=20))
    with refused("must be some of the model's 20"):
        keep_pieces(model, [3, 20])
