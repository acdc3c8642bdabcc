"""Permutation pre-training: memory from batch to batch. That it is the same interrupted is in test_resume.py."""

import dataclasses

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertConfig, XlnetPretrainer
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.load import load
from albert_tf.training import pretraining
from albert_tf.training.loop.devices import Devices
from tfrecords.reading.permutations import read_permutations

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def settings(run_settings):
    """Four updates with a memory of 24, in two parts a step."""
    return run_settings("permutation")


@pytest.fixture(scope="module")
def straight(trained):
    return trained("permutation")


def test_checkpoints_hold_the_memory_and_the_model_does_not(straight, settings):
    memory = load_keras(straight / "last.keras", compile=True).memory.to_numpy()
    # Two parts, two steps, four rows, 24 tokens, of which each row gives 16.
    assert memory.shape == (2, 2, 4, 24, 16) and memory.all()
    model = load(straight).model
    assert isinstance(model, XlnetPretrainer) and not model.memory.is_kept
    assert (model.encoder.config.memory_length, model.encoder.config.reuse_length) == (24, 16)


def test_the_memory_is_what_the_batch_before_left(straight, settings):
    """Of the last two updates, computed again with the memory as a feature of the batch."""
    model = load_keras(straight / "last.keras", compile=True)
    batch = next(read_permutations(settings.train_data, 8, True, parts=2).as_numpy_iterator())
    memory = model.memory.to_numpy()
    given = model.encoder(
        {key: batch[key] for key in ("input_ids", "segment_ids", "is_reversed")} | {"memory": memory[0]}
    )
    model.encoder.seed_generator = None
    model(batch, training=True)
    after = model.memory.to_numpy()
    assert_array_equal(after[0], memory[1])
    # The part that is remembered of this batch is the reused one; of the first step it is the embedding's own.
    assert_array_equal(after[1][:, :, :8], memory[0][:, :, 16:])
    assert_allclose(after[1][0, :, 8:], given["memory"][0, :, 8:], atol=1e-6)


def test_a_configuration_says_the_memory_where_no_flag_does(settings, tmp_path):
    def config_of(**changes):
        run = dataclasses.replace(settings, output_dir=str(tmp_path), **changes)
        return pretraining.Pretraining(run, Devices(), 0.0).config

    assert config_of(memory_length=0).memory_length == config_of(memory_length=0).reuse_length == 0
    AlbertConfig.from_json(settings.config).replace(memory_length=10).to_json(tmp_path / "config.json")
    config = config_of(memory_length=0, config=str(tmp_path / "config.json"))
    assert (config.memory_length, config.reuse_length) == (10, 16)
