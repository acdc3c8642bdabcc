"""Training is the same interrupted or not, refuses what cannot be trained, and keeps what it says it keeps."""

import csv
import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from albert_tf import AlbertEncoder, AlbertPretrainer, run_evaluation
from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.loading import load
from albert_tf.training import loop, pretraining
from albert_tf.training.devices import Devices
from albert_tf.training.evaluation import evaluate, trivial_baselines
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.reader import read_examples

pytestmark = pytest.mark.usefixtures("eagerly")


def history(folder):
    return list(csv.DictReader((folder / "history.csv").read_text().splitlines()))


def test_the_folder_holds_what_later_stages_need(tiny_run):
    loaded = load(tiny_run)
    model, tokenizer = loaded.model, loaded.tokenizer
    assert tokenizer.vocab_size == model.encoder.config.vocab_size == 500
    rows = history(tiny_run)
    assert [row["step"] for row in rows] == ["2", "4"]
    assert all(float(row["val_loss"]) > 0 and 0 <= float(row["masked_lm_accuracy"]) <= 1 for row in rows)
    assert any((tiny_run / "tensorboard").rglob("events.*"))
    # The kept model has no optimizer in it: a third of the size.
    assert (tiny_run / "model.keras").stat().st_size < 0.7 * (tiny_run / "last.keras").stat().st_size


def test_records_built_with_other_masks_are_another_run(tiny_settings, tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    run = files.read_json(path)
    decisive = {
        "masking",
        "masked_lm_prob",
        "max_ngram",
        "whole_words",
        "pair_task",
        "seed",
        "format_version",
        "word_rule",
    }
    assert run["records"][0].keys() == decisive
    same = dataclasses.replace(tiny_settings, output_dir=str(tmp_path / "run"))
    for change in ({"masked_lm_prob": 0.3}, {"max_ngram": 1}, {"word_rule": "published"}):
        files.write_json(path, run | {"records": [run["records"][0] | change]})
        with pytest.raises(UserError, match="holds a run with records="):
            pretraining.pretrain(same)
    # A run of before they were noted goes on.
    files.write_json(path, {key: value for key, value in run.items() if key != "records"})
    pretraining.pretrain(same)


def test_a_finished_run_is_left_alone(tiny_settings, tiny_run, capsys):
    before = (tiny_run / "last.keras").stat().st_mtime_ns
    pretraining.pretrain(tiny_settings)
    assert "trained already" in capsys.readouterr().out
    assert (tiny_run / "last.keras").stat().st_mtime_ns == before


def test_other_settings_are_refused_in_a_folder_that_has_a_run(tiny_settings, tiny_run):
    with pytest.raises(UserError, match=r"learning_rate=0\.01 \(now 0\.02\).*another --output_dir"):
        pretraining.pretrain(dataclasses.replace(tiny_settings, learning_rate=0.02))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": "albert_huge"}, "albert_huge"),
        ({"train_data": "nowhere/*.tfrecord"}, r"nowhere/\*\.tfrecord"),
        ({"eval_data": "nowhere/*.tfrecord"}, r"nowhere/\*\.tfrecord"),
        ({"optimizer": "lamp"}, "lamp"),
        ({"num_warmup_steps": 4}, "num_warmup_steps=4"),
        ({"num_train_steps": 0}, "num_train_steps=0"),
        ({"train_batch_size": 0}, "train_batch_size=0"),
        ({"learning_rate": -0.001}, r"--learning_rate=-0\.001 must be 0 or more"),
        ({"dtype_policy": "float7"}, "float7"),
        ({"output_dir": "/proc/nowhere"}, "/proc/nowhere"),
    ],
)
def test_impossible_settings_are_named_and_leave_nothing(tiny_settings, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        pretraining.pretrain(dataclasses.replace(tiny_settings, **({"output_dir": str(tmp_path / "run")} | change)))
    assert not (tmp_path / "run").exists()


def test_records_longer_than_the_model_are_refused(tiny_settings, tmp_path):
    short = tmp_path / "short.json"
    short.write_text(
        Path(tiny_settings.config).read_text().replace('"max_position_embeddings": 48', '"max_position_embeddings": 16')
    )
    with pytest.raises(
        UserError, match=r"32 tokens long, the model takes at most 16; .* or raise max_position_embeddings"
    ):
        pretraining.pretrain(dataclasses.replace(tiny_settings, config=str(short), output_dir=str(tmp_path / "run")))


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(tiny_settings, tmp_path):
    settings = dataclasses.replace(
        tiny_settings, output_dir=str(tmp_path / "run"), learning_rate=1e30, optimizer="adamw", num_warmup_steps=0
    )
    with pytest.raises(UserError, match=r"held-out loss is nan.*learning_rate.*another --output_dir"):
        pretraining.pretrain(settings)
    assert not (tmp_path / "run" / "last.keras").exists()


@pytest.mark.parametrize(
    ("metric", "lower_is_better", "scores", "stored"),
    [
        ("val_loss", True, (1.5, 1.2, 1.2000001, 1.3, 1.1), [1.5, 1.2, 1.1]),
        ("dev_accuracy", False, (0.5, 0.6, 0.6, 0.4), [0.5, 0.6]),
        ("not measured", False, (2.0, 1.0), [2.0, 1.0]),
    ],
)
def test_the_first_of_the_best_models_is_stored(metric, lower_is_better, scores, stored, tmp_path, monkeypatch):
    """Where nothing is measured, the newest."""
    saved = []
    monkeypatch.setattr(loop, "save_keras", lambda model, path, optimizer: saved.append(model))
    monkeypatch.setattr(loop.run_folder, "save_checkpoint", lambda *_: None)
    training = object.__new__(pretraining.Pretraining)
    training.devices, training.folder, training.best = Devices(), tmp_path, -math.inf
    training.main_metric, training.lower_is_better = metric, lower_is_better
    for score in scores:
        training.model = score
        training._save({} if metric == "not measured" else {metric: score})
    assert saved == stored


def test_a_model_without_an_answer_to_pairs_is_evaluated_on_records_of_pairs(tiny_run, tiny_data, tmp_path, capsys):
    model = AlbertPretrainer(load_keras(tiny_run / "model.keras").encoder, pair_task=None)
    save_keras(model, tmp_path / "model.keras", optimizer=False)
    load(tiny_run).tokenizer.save(tmp_path)
    settings = {"model": str(tmp_path), "train_data": str(tiny_data), "eval_data": str(tiny_data)}
    output = tmp_path / "figures.json"
    run_evaluation.main(run_evaluation.EvaluationSettings(**settings, output=str(output), max_eval_steps=1))
    said = capsys.readouterr().out
    assert "masked_lm_accuracy" in said
    assert re.search(r"sentence_order_accuracy +not measured: no task of this model", said)
    assert "sentence_order_accuracy" in json.loads(output.read_text())["baseline"]


@pytest.mark.slow
def test_evaluation_beside_the_trivial_baselines(tiny_run, tiny_data):
    """Counted by hand from the same records."""
    batches = list(read_examples(tiny_data, 16, training=False).as_numpy_iterator())
    tokens = np.concatenate([batch["masked_lm_ids"][batch["masked_lm_weights"] > 0] for batch in batches])
    labels = np.concatenate([batch["next_sentence_labels"].ravel() for batch in batches])
    baselines = trivial_baselines(str(tiny_data), str(tiny_data))
    assert baselines["masked_lm_accuracy"] in {np.mean(tokens == token) for token in set(tokens)}
    assert any(
        baselines["sentence_order_accuracy"] == pytest.approx(share) for share in (labels.mean(), 1 - labels.mean())
    )

    first = trivial_baselines(str(tiny_data), str(tiny_data), batch_size=16, max_eval_steps=1)
    labels = batches[0]["next_sentence_labels"]
    assert any(first["sentence_order_accuracy"] == pytest.approx(share) for share in (labels.mean(), 1 - labels.mean()))

    figures = evaluate(load_keras(tiny_run / "model.keras"), str(tiny_data), batch_size=7)
    assert figures["loss"] == pytest.approx(
        evaluate(load_keras(tiny_run / "model.keras"), str(tiny_data), 64)["loss"], rel=1e-3
    )
    assert set(figures) >= {"masked_lm_accuracy", "sentence_order_accuracy", "masked_lm_loss"}


def test_another_model_under_the_same_name_is_refused(tiny_settings, tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    changed, run = tmp_path / "config.json", tmp_path / "run" / "run.json"
    text = Path(tiny_settings.config).read_text()
    changed.write_text(text.replace('"intermediate_size": 32', '"intermediate_size": 64'))
    files.write_json(run, files.read_json(run) | {"config": str(changed)})
    settings = dataclasses.replace(tiny_settings, config=str(changed), output_dir=str(tmp_path / "run"))
    with pytest.raises(UserError, match=r"holds a run with model="):
        pretraining.pretrain(settings)


def test_a_damaged_or_absent_model_is_named(tiny_run, tmp_path):
    with pytest.raises(UserError, match="no model at"):
        load(tmp_path)
    shutil.copytree(tiny_run, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.keras").write_bytes(b"not a zip")
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "damaged")
    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]).save(tmp_path / "damaged" / "model.keras")
    with pytest.raises(UserError, match="holds a Sequential"):
        load(tmp_path / "damaged")


def test_dropout_is_drawn_anew_each_step_and_resumed(tiny_run):
    """The seed of the dropout travels in the checkpoint; without it a resumed run could not be bit-equal."""
    model = load_keras(tiny_run / "last.keras", compile=True)
    states = [variable for variable in model.variables if "seed" in variable.path]
    assert states and all(keras.ops.convert_to_numpy(state).any() for state in states)


def test_records_of_another_vocabulary_tokenizer_or_length_are_not_evaluated(tiny_run, tiny_data, tmp_path):
    loaded = load(tiny_run)
    model, tokenizer = loaded.model, loaded.tokenizer
    shutil.copytree(tiny_data, tmp_path / "data")
    manifest = tmp_path / "data" / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"vocab_size": 500', '"vocab_size": 400'))
    with pytest.raises(UserError, match="vocab_size 400, needed is 500"):
        evaluate(model, str(tmp_path / "data"))
    manifest.write_text(whole.replace(tokenizer.sha256, "0" * 64))
    with pytest.raises(UserError, match="have tokenizer_sha256 '0000"):
        evaluate(model, str(tmp_path / "data"), tokenizer=tokenizer)
    short = AlbertPretrainer(AlbertEncoder(model.encoder.config.replace(max_position_embeddings=16)))
    with pytest.raises(UserError, match="32 tokens long, the model takes 16"):
        evaluate(short, str(tiny_data))
