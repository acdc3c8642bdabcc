"""Replaced-token pre-training: what its model is afterwards. That it is the same interrupted is in test_resume.py."""

import dataclasses
import json

import pytest

from albert_tf import AlbertEncoder, ElectraPretrainer
from albert_tf.loading import load
from albert_tf.run_evaluation import EvaluationSettings, main
from albert_tf.training import memory
from albert_tf.training.start import load_start
from serving.exportable import ExportOptions, make_exportable

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def settings(run_settings):
    return run_settings("replaced")


def test_its_folder_is_evaluated_trained_on_and_exported_as_any_other(settings, trained, tmp_path, capsys):
    folder = trained("replaced")
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


def test_a_generator_needs_memory(settings):
    config = load_start("", settings.config).config
    plain = memory.step_need(config, 32, 5, dataclasses.replace(settings, objective="masked"))
    own = memory.step_need(config, 32, 5, settings)
    itself = memory.step_need(config, 32, 5, dataclasses.replace(settings, generator_steps=1))
    assert own.fixed > plain.fixed == itself.fixed
    assert plain.row < own.row < itself.row + plain.row and itself.row == 1.5 * plain.row
