"""Narrow embeddings keep the nearest table of their rank and its mean; another vocabulary keeps rows in common."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertEncoder, AlbertPretrainer
from albert_tf.checkpoints.resizing import factorize_embeddings, keep_pieces, word_table
from albert_tf.checkpoints.variables import named_variables
from albert_tf.models.permutation import XlnetPretrainer
from tests.albert_tf import depth_cases
from tests.albert_tf.depth_cases import filled, small
from tests.albert_tf.tiny import values_of
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(embedding_size=16, num_hidden_layers=2, sharing="none", initializer_range=0.3)
FEATURES = depth_cases.TOKENS


def of_rank(rank):
    """An encoder whose table has that rank beside its mean."""
    encoder, random = AlbertEncoder(CONFIG, seed=1), np.random.default_rng(0)
    table = random.normal(size=(40, rank)) @ random.normal(size=(rank, 16)) + random.normal(size=16)
    encoder.embeddings.word_embeddings.assign(table)
    return encoder


@pytest.mark.parametrize("rank, size", [(1, 8), (8, 8), (5, 15)])
def test_a_table_of_low_rank_is_kept_exactly(rank, size):
    encoder = of_rank(rank)
    narrow = factorize_embeddings(encoder, size)
    assert_allclose(narrow(FEATURES)["pooled_output"], encoder(FEATURES)["pooled_output"], atol=2e-4)
    assert narrow.config.factorization == "word" and narrow.config.embedding_size == size
    kept = [name for name in named_variables(encoder) if "word" not in name and "token_type" not in name]
    for name in kept:
        assert_array_equal(named_variables(narrow)[name], named_variables(encoder)[name])


def mean_and_errors(encoder, size, counts=None):
    """The mean of the rows, which the segments hold, and what each row of the narrow table lacks."""
    narrow = factorize_embeddings(encoder, size, counts)
    mean = np.array(narrow.embeddings.token_type_embeddings - encoder.embeddings.token_type_embeddings)[0]
    return mean, np.linalg.norm(word_table(narrow) + mean - word_table(encoder), axis=1)


def test_what_is_left_out_is_what_the_singular_values_say():
    table = word_table(encoder := of_rank(12))
    values = np.linalg.svd(table - table.mean(axis=0), compute_uv=False)
    mean, errors = mean_and_errors(encoder, 5)
    assert_allclose(mean, table.mean(axis=0), atol=1e-5)
    assert_allclose(np.linalg.norm(errors), np.linalg.norm(values[5:]), rtol=1e-4)


def test_counted_rows_are_the_better_kept():
    counted, equal = (mean_and_errors(of_rank(16), 6, counts)[1] for counts in (np.array([1000] * 5 + [0] * 35), None))
    assert counted[:5].mean() < 0.2 * equal[:5].mean()


def test_a_masked_lm_head_answers_the_same():
    encoder = of_rank(4)
    model = AlbertPretrainer(encoder, pair_task=None)
    narrow = factorize_embeddings(model, 6)
    one, other = (np.array(each(FEATURES)["masked_lm_logits"]) for each in (model, narrow))
    one, other = (logits - logits.mean(axis=-1, keepdims=True) for logits in (one, other))
    assert_allclose(other, one, atol=5e-3)


def test_a_factorised_table_is_cut_again_and_alberts_is_refused():
    encoder = factorize_embeddings(of_rank(4), 9)
    twice = factorize_embeddings(encoder, 5)
    assert_allclose(twice(FEATURES)["pooled_output"], encoder(FEATURES)["pooled_output"], atol=2e-4)
    assert factorize_embeddings(encoder, 9) is encoder
    with refused("from 1 to below the model's 9"):
        factorize_embeddings(encoder, 12)
    albert = AlbertEncoder(CONFIG.replace(embedding_size=8, sharing="all"))
    with refused("factorised already, at 8 columns with a layer norm"):
        factorize_embeddings(albert, 4)


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
    model = filled(kind(small(vocab_size=20, **changes)))
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
    with refused("must be some of the model's 20"):
        keep_pieces(model, [3, 20])
