"""What a model is cut to, and what it is before any training."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertSentenceEmbedder
from albert_tf.checkpoints.resizing import narrow_blocks
from albert_tf.checkpoints.variables import named_variables
from albert_tf.compression.settings import CompressSettings
from albert_tf.compression.start import CompressionPlan, compress, cut_config, cut_of, keep_layers
from tests.albert_tf.tiny import small
from tests.refusals import assert_refused, lines, refused

CONFIG = small(
    embedding_size=16, num_hidden_layers=4, max_position_embeddings=12, sharing="none", initializer_range=0.3
)
FEATURES = {"input_ids": np.arange(20).reshape(2, 10).astype("int32")}


@pytest.fixture(scope="module")
def encoder():
    return AlbertEncoder(CONFIG, seed=1)


def settings(**changes):
    return CompressSettings(**{"model": "m", "output_dir": "o", "text": "t", "num_train_steps": 0} | changes)


def test_defaults_are_filled_in(encoder):
    # 16 columns are below the default of 128 already.
    assert cut_of(settings(), encoder) == CompressionPlan((0, 1, 2, 3), 0, "1x4", 16)
    assert cut_of(settings(embedding_size=8, layers=2, lora_rank=0), encoder) == CompressionPlan((1, 3), 8, "1x2")
    assert cut_of(settings(plan="none"), encoder) == CompressionPlan((0, 1, 2, 3))
    albert = AlbertEncoder(CONFIG.replace(sharing="all", embedding_size=8))
    assert cut_of(settings(), albert) == CompressionPlan((0, 1, 2, 3))


REFUSED = r"""
--layers=5 => --layers=5 is more than the model's 4
--plan=1x3 => runs 3 blocks, num_hidden_layers is 4
--plan=x => is no part of a plan
--task=sst2 --text= => give the texts to learn from
--data_dir=d => --data_dir=d is for --task; give both, or leave it out
--text= => give the texts to learn from: --text='corpus/\*.txt', or --task and --data_dir
--task=sst2 --data_dir=d => or --task and --data_dir, not both
--vocab_size=5 => --vocab_size=5 is for --vocab_from; give both, or leave it out
--embedding_size=17 => embedding size 17 must be from 1 to below the model's 16
--intermediate_size=24 => intermediate size 24 must be from 1 to below the model's 24
--embedding_size=8 --plan=none --lora_rank=2 => --lora_rank=2 is of blocks that are shared
factorised | --embedding_size=4 => factorised already, at 8 columns
relative | --embedding_size=8 => without a layer norm
"""
OTHERS = {"factorised": {"embedding_size": 8}, "relative": {"position_type": "relative"}}


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_cannot_be_cut_so_is_said_before_anything_is_measured(encoder, line):
    of, _, line = line.rpartition(" | ")
    model = AlbertEncoder(CONFIG.replace(**OTHERS[of])) if of else encoder
    assert_refused(line, settings(), lambda asked: cut_of(asked, model))


def test_a_cut_has_the_configuration_foretold(encoder):
    for changes in (
        {"embedding_size": 8},
        {"plan": "1+1x2+1", "lora_rank": 2, "intermediate_size": 8},
        {"layers": 2, "embedding_size": 4},
        {"plan": "none", "intermediate_size": 20},
    ):
        cut = cut_of(settings(**changes), encoder)
        assert compress(encoder, cut).config == cut_config(CONFIG, cut)


def test_layers_that_stay_are_as_they_were_with_their_exits(encoder):
    model = AlbertClassifier(encoder, 3, early_exit=True)
    kept, named = named_variables(keep_layers(model, (1, 3))), named_variables(model)
    assert {"exit_0/kernel", "classifier/kernel", "attention_1/query/kernel"} < kept.keys()
    assert any(name.startswith("exit_0/") for name in kept)
    for name, variable in kept.items():
        before = name.replace("_1/", "_3/").replace("_0/", "_1/")
        assert_array_equal(variable, named[before], err_msg=name)
    with refused("whose layers share nothing"):
        keep_layers(AlbertEncoder(CONFIG.replace(sharing="all")), (1, 3))


def test_the_words_of_relative_positions_stay_as_wide_by_default():
    sizes = {"hidden_size": 160, "embedding_size": 160, "position_type": "relative"}
    assert cut_of(settings(), AlbertEncoder(CONFIG.replace(**sizes))).embedding_size == 0


@pytest.mark.parametrize("changes", [{}, {"feed_forward": "glu"}], ids=["", "gated"])
def test_units_without_effect_are_the_ones_that_go(changes):
    """With the low rank of their block and of every step."""

    def check(model, units):
        narrow = narrow_blocks(model, units)(FEATURES)["sequence_output"]
        assert_allclose(narrow, model(FEATURES)["sequence_output"], atol=1e-5)

    model = AlbertEncoder(CONFIG.replace(**changes), seed=2)
    for number, half in enumerate(model.halves_of("feed_forward")):
        kernel = np.array(half.output_dense.kernel)
        kernel[[3 + number, 7]] = 0
        half.output_dense.kernel.assign(kernel)
    check(model, 22)
    shared = compress(model, CompressionPlan((0, 1, 2, 3), 0, "1x4", 2))
    (half,) = shared.halves_of("feed_forward")
    for variable in (half.output_dense.kernel, half.lora_output.a):
        variable.assign(np.where(np.arange(24)[:, None] == 5, 0, variable))
    check(shared, 23)


def test_heads_stay_and_an_embedders_pooler_goes(encoder):
    cut, model = CompressionPlan((0, 1, 2, 3), 8, "1x4", 2), AlbertClassifier(encoder, 3)
    assert compress(AlbertSentenceEmbedder(encoder), cut).encoder.pooler is None
    small = compress(model, cut)
    assert small(FEATURES).shape == (2, 3) and small.encoder.config.embedding_size == 8
    kernels = [one.head_variables()["classifier/kernel"] for one in (small, model)]
    assert_array_equal(*kernels)
