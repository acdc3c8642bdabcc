"""Short examples that share rows: the same updates from fewer rows."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf import AlbertConfig
from albert_tf.training import phases, pretraining
from albert_tf.training.loop import training as loop
from tests.albert_tf.training.trainers import history, pretrain
from tfrecords.reading.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def settings(run_settings, tmp_path_factory):
    """Of a run without dropout on records half of which is padding."""
    settings, path = run_settings("packed"), tmp_path_factory.mktemp("packed") / "config.json"
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    AlbertConfig.from_json(settings.config).replace(**no_dropout).to_json(path)
    return dataclasses.replace(
        settings, config=str(path), log_steps=1, num_train_steps=2, gradient_accumulation_steps=1
    )


@pytest.fixture
def rows(monkeypatch):
    """Of each batch that a step has seen."""
    seen = []
    record = loop.TrainingReport.batch
    monkeypatch.setattr(
        loop.TrainingReport, "batch", lambda self, *shape: (seen.append(shape[0]), record(self, *shape))
    )
    return seen


def figures(folder):
    names = ("masked_lm_loss", "masked_lm_accuracy", "sentence_order_loss", "gradient_norm")
    return [[float(row[name]) for name in names] for row in history(folder)]


def test_packed_rows_give_the_updates_of_single_ones(settings, rows, tmp_path):
    """In two parts each, whose gradients are those of the whole batch."""
    changes = {"num_train_steps": 1, "num_warmup_steps": 0, "gradient_accumulation_steps": 2}
    packed, single = (
        figures(pretrain(settings, tmp_path / str(pack), pack_rows=pack, **changes)) for pack in (True, False)
    )
    np.testing.assert_allclose(packed, single, rtol=1e-5)
    assert rows[2:] == [8, 8] and sum(rows[:2]) < 0.9 * 16


def phase(settings, eval_data="", **changes):
    manifest = read_manifest(eval_data or settings.train_data)
    return phases.RecordsPhase(0, 3, settings.train_data, eval_data, 16, manifest | changes)


def shapes(settings, some_phase, packed=True):
    dataset = some_phase.training(settings, 0, packed)(1, 1, 0)
    return [batch["input_ids"].shape for batch in dataset.take(6).as_numpy_iterator()]


def test_only_padding_is_packed(settings):
    short = phase(settings)
    assert short.fill < 0.8
    assert sum(rows for rows, _ in shapes(settings, short)) < 0.9 * 6 * 16
    assert shapes(settings, short, packed=False) == [(16, 96)] * 6
    full = {"train": {"examples": 100, "tokens": 8000}}
    assert phase(settings, splits=full).fill == 8000 / 9600
    assert shapes(settings, phase(settings, splits=full)) == [(16, 96)] * 6


def test_models_that_look_at_whole_rows_get_single_ones(settings):
    config = AlbertConfig.from_json(settings.config)

    def packs(of_settings, **changes):
        run = SimpleNamespace(config=config.replace(**changes), settings=dataclasses.replace(settings, **of_settings))
        return pretraining.Pretraining._packed.fget(run)

    assert packs({}) and not packs({"pack_rows": False})
    assert not packs({}, attention_window=8, position_type="rotary") and not packs({}, position_type="relative")
    assert not packs({}, equilibrium_solver="fixed_point") and not packs({}, halting="act")


def test_an_evaluation_reads_no_more_batches_than_asked_for_however_devices_share_them(settings, tiny_data):
    for steps, batches in ((2, 4), (0, None)):
        own = dataclasses.replace(settings, max_eval_steps=steps, eval_batch_size=8)
        read = phase(own, eval_data=str(tiny_data)).held_out(own)
        found = [len(batch["input_ids"]) for batch in read(2, 1, 0).as_numpy_iterator()]
        assert set(found[:-1]) == {4} and (len(found) == batches if batches else len(found) > 4)
    assert phase(settings).held_out(settings) is None
