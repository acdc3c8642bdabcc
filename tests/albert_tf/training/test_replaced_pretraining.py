"""Replaced-token pre-training: the same interrupted or not, and what its model is afterwards."""

import csv
import dataclasses
import json

import numpy as np
import pytest

from albert_tf import AlbertEncoder, ElectraPretrainer
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading import load
from albert_tf.run_evaluation import EvaluationSettings, main
from albert_tf.training import memory, pretraining
from albert_tf.training.start import load_start
from serving.exportable import ExportOptions, make_exportable
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")


def state(folder):
    model = load_keras(folder / "last.keras", compile=True)
    return [*model.get_weights(), *map(np.array, model.optimizer.variables), np.array(model.draws.state)]


def figures(folder):
    rows = csv.DictReader((folder / "history.csv").read_text().splitlines())
    return [[row[name] for name in ("step", "loss", "replaced_token_loss", "val_loss")] for row in rows]


@pytest.fixture(scope="module")
def settings(tiny_settings):
    return dataclasses.replace(tiny_settings, objective="replaced", num_train_steps=3)


@pytest.mark.parametrize("generator_steps", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_interrupted_and_resumed_equals_uninterrupted(settings, generator_steps, tmp_path, capsys):
    """With dropout and draws of words; then the folder is evaluated, trained on and exported as any other."""
    straight, stopped = (
        dataclasses.replace(settings, output_dir=str(tmp_path / name), generator_steps=generator_steps)
        for name in ("straight", "stopped")
    )
    straight_folder = pretraining.pretrain(straight)
    pretraining.pretrain(stopped, stop_step=2)
    folder = pretraining.pretrain(stopped)
    for ours, theirs in zip(state(straight_folder), state(folder), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert figures(straight_folder) == figures(folder)
    _is_a_model_folder(folder, settings, tmp_path, capsys)


def _is_a_model_folder(folder, settings, tmp_path, capsys):
    loaded = load(folder)
    assert isinstance(loaded.model, ElectraPretrainer) and isinstance(loaded.in_use.model, AlbertEncoder)
    records = {"train_data": settings.train_data, "eval_data": settings.eval_data}
    output = tmp_path / "figures.json"
    main(EvaluationSettings(model=str(folder), max_eval_steps=1, output=str(output), **records))
    said, found = capsys.readouterr().out, json.loads(output.read_text())
    assert "replaced_token_accuracy" in said and "masked_lm_accuracy" in said
    share = found["model"]["replaced_token_share"]
    assert 0 < share < 0.3 and found["baseline"]["replaced_token_accuracy"] == pytest.approx(1 - share)
    assert load_start(str(folder), "").config == loaded.model.encoder.config
    assert make_exportable(loaded.in_use.model, ExportOptions(max_seq_length=16)).signatures()


def test_settings_of_another_objective_are_refused(settings):
    for name, value in (("generator_size", 0.5), ("generator_steps", 1), ("replaced_weight", 1.0)):
        with pytest.raises(UserError, match=f"--{name}={value} is for --objective=replaced"):
            dataclasses.replace(settings, objective="masked", **{name: value})
    with pytest.raises(UserError, match=r"--generator_size=2\.0 must be"):
        dataclasses.replace(settings, generator_size=2.0)


def test_a_generator_needs_memory(settings):
    config = load_start("", settings.config).config
    plain = memory.step_need(config, 32, 5, dataclasses.replace(settings, objective="masked"))
    own = memory.step_need(config, 32, 5, settings)
    itself = memory.step_need(config, 32, 5, dataclasses.replace(settings, generator_steps=1))
    assert own.fixed > plain.fixed == itself.fixed
    assert plain.row < own.row < itself.row + plain.row and itself.row == 1.5 * plain.row
