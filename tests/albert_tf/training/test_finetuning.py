"""Fine-tuning: what it leaves, interrupted or not, and what it refuses."""

import csv
import dataclasses
import json
import shutil
import statistics

import numpy as np
import pytest

from albert_tf import run_finetuning
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading import load
from albert_tf.model_files import load_task
from albert_tf.training import finetuning, loop
from albert_tf.training.batches import predict
from albert_tf.training.devices import Devices
from albert_tf.training.preparation import prepare
from tests.albert_tf.training.classes import write_classes
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")


def history(folder, *columns):
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    return [[row[name] for name in columns] for row in rows] if columns else rows


def assert_same_weights(one, other, name="last.keras"):
    for first, second in zip(*(load_keras(folder / name).get_weights() for folder in (one, other)), strict=True):
        np.testing.assert_array_equal(first, second)


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def settings(class_settings, tmp_path):
    return dataclasses.replace(class_settings, output_dir=str(tmp_path / "run"))


def test_the_folder_holds_what_serving_and_later_stages_need(finetuned):
    loaded = load(finetuned)
    model, tokenizer = loaded.model, loaded.tokenizer
    assert type(model).__name__ == "AlbertClassifier" and tokenizer.vocab_size == 500
    task = load_task(finetuned)
    best = max(history(finetuned), key=lambda row: float(row["dev_accuracy"]))
    assert task | {"metrics": None} == {
        "task": "classification", "kind": "classification", "labels": ["no", "yes"], "inputs": ["text"],
        "max_seq_length": 48, "null_threshold": None, "metrics": None,
    }  # fmt: skip
    assert task["metrics"]["accuracy"] == pytest.approx(float(best["dev_accuracy"]), abs=1e-6)
    assert load_task(finetuned / "model.keras") == task and load_task(finetuned / "tensorboard") is None
    assert history(finetuned, "step", "truncated_texts", "truncated_tokens") == [[step, "0", "0"] for step in "245"]


def test_predictions_are_the_kept_models(finetuned, class_settings):
    rows = list(csv.DictReader((finetuned / "predictions" / "dev.tsv").open(), delimiter="\t"))
    right = np.mean([row["prediction"] == row["label"] for row in rows])
    assert len(rows) == 8 and right == load_task(finetuned)["metrics"]["accuracy"]
    run = prepare(class_settings)
    outputs = predict(load_keras(finetuned / "model.keras"), run.evaluation[0].rows, 3, 48)
    logits = [[float(row["logit:no"]), float(row["logit:yes"])] for row in rows]
    np.testing.assert_allclose(logits, outputs, atol=1e-6)
    test = list(csv.DictReader((finetuned / "predictions" / "test.tsv").open(), delimiter="\t"))
    assert len(test) == 2 and "label" not in test[0] and test[0]["prediction"] in ("no", "yes")


def test_a_finished_run_is_left_alone_but_answers_new_files(class_settings, finetuned, tmp_path, capsys):
    data, folder = tmp_path / "data", tmp_path / "run"
    shutil.copytree(class_settings.data_dir, data, ignore=shutil.ignore_patterns("run"))
    shutil.copytree(finetuned, folder)
    before = (folder / "last.keras").stat().st_mtime_ns
    (data / "test.tsv").write_text("text\n" + "good\n" * 4 + "good " * 100 + "\n")
    finetuning.finetune(dataclasses.replace(class_settings, data_dir=str(data), output_dir=str(folder)))
    said = capsys.readouterr().out
    assert "trained already" in said
    assert "truncated: train 0.00% of " in said and "test 20.00% of 5 texts (" in said
    assert (folder / "last.keras").stat().st_mtime_ns == before
    assert len((folder / "predictions" / "test.tsv").read_text().splitlines()) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "sst3"}, "--task=sst3 is unknown"),
        ({"data_dir": "nowhere"}, "holds no train file"),
        ({"task": "rte"}, "holds no training file|no column"),
        ({"init_from": "nowhere"}, "nowhere"),
        ({"init_from": "", "config": "albert_huge"}, "albert_huge|--tokenizer"),
        ({"config": "albert_base_v2"}, "--init_from=... to start from trained weights, or --config"),
        ({"max_seq_length": 100}, "--max_seq_length=100 is more than the 48 tokens"),
        ({"num_warmup_steps": 5}, "--num_warmup_steps=5 must be below the 5 steps"),
        ({"num_train_epochs": 2.0}, "exclude each other"),
        ({"learning_rate": -1.0}, "--learning_rate=-1.0 must be 0 or more"),
        ({"albert_dropout": 1.0}, "--albert_dropout=1.0"),
        ({"dtype_policy": "float7"}, "float7"),
        ({"seeds": "3,3"}, "--seeds=3,3"),
        ({"seeds": "0"}, "--seeds=0"),
        ({"text_column": "sentence"}, "no column 'sentence'; it has 'text', 'label'"),
        ({"output_dir": "/proc/nowhere"}, "/proc/nowhere"),
        ({"output_dir": "/proc/nowhere", "dryrun": True}, "cannot write to output folder '/proc/nowhere'"),
        ({"max_seq_length": 2}, "--max_seq_length=2"),
        ({"seed": -1}, "--seed=-1 must be from 0 to 4294967295"),
        ({"seeds": "1,4294967296"}, "--seeds=1,4294967296"),
        ({"temperature": 3.0}, "--temperature=3.0 is for --teacher; leave it out"),
        ({"early_exit": True, "exit_beta": 0.1}, "--exit_beta=0.1 is for --learned_exit; leave it out"),
    ],
)
def test_what_cannot_be_run_is_named_and_leaves_nothing(settings, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        finetuning.finetune(dataclasses.replace(settings, **change))
    assert not (tmp_path / "run").exists()


def test_the_command_ends_bad_input_in_one_line(run_module, tmp_path):
    done = run_module(
        "albert_tf.run_finetuning", "--task=sst2", f"--data_dir={tmp_path}", "--output_dir=x", "--config=x"
    )
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_dry_run_on_many_devices_has_rows_for_each(settings, monkeypatch):
    tried = []
    monkeypatch.setattr(finetuning.Finetuning, "run", lambda self: tried.append(self.settings.train_batch_size))
    for replicas, rows in ((3, 3), (8, 8)):
        settings = dataclasses.replace(settings, dryrun=True, train_batch_size=24)
        finetuning.finetune(settings, devices=Devices(replicas=replicas))
        assert tried.pop() == rows
        with pytest.raises(UserError, match=f"{replicas} devices cannot share a batch of 10 rows"):
            finetuning.finetune(dataclasses.replace(settings, train_batch_size=10), devices=Devices(replicas=replicas))


def test_updates_that_are_skipped_again_and_again_end_the_run():
    training = object.__new__(finetuning.Finetuning)
    training.step = 30
    training.check({"loss": 1.0, "skipped": 20})
    with pytest.raises(UserError, match=r"21 updates up to step 30 had gradients that are not finite.*more than 20"):
        training.check({"loss": 1.0, "skipped": 21})


class Killed(BaseException):
    pass


def test_killed_and_resumed_equals_uninterrupted(settings, finetuned, tmp_path, monkeypatch):
    step = loop.Report.step

    def die_in_the_fourth_step(self, *arguments):
        if self.bar.n == 3:
            raise Killed
        step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Report, "step", die_in_the_fourth_step)
        with pytest.raises(Killed):
            finetuning.finetune(settings)
    assert int(load_keras(tmp_path / "run" / "last.keras", compile=True).optimizer.iterations) == 2
    finetuning.finetune(settings)
    assert_same_weights(tmp_path / "run", finetuned)
    columns = ("step", "loss", "dev_accuracy")
    assert history(tmp_path / "run", *columns) == history(finetuned, *columns)
    for name in ("predictions/dev.tsv", "task.json"):
        assert (tmp_path / "run" / name).read_text() == (finetuned / name).read_text()


def test_a_run_that_gets_no_better_stops_early_and_keeps_the_first_of_the_best(settings, tmp_path, monkeypatch, capsys):
    scores, seen = iter([0.25, 0.5, 0.5, 0.25, 1.0]), []

    def evaluate(self, phase):
        seen.append(self.model.get_weights())
        return {"dev_accuracy": next(scores)}

    monkeypatch.setattr(finetuning.Finetuning, "evaluate", evaluate)
    settings = dataclasses.replace(
        settings, save_checkpoints_steps=1, early_stopping=2, class_weights="no=0,yes=2", num_train_steps=9
    )
    folder = finetuning.finetune(settings)
    assert history(folder, "step", "dev_accuracy") == [["1", "0.25"], ["2", "0.5"], ["3", "0.5"], ["4", "0.25"]]
    assert "no better dev_accuracy in 2 evaluations: stopped early" in capsys.readouterr().out
    assert load_task(folder)["metrics"] == {"accuracy": 0.5}
    for kept, second in zip(load_keras(folder / "model.keras").get_weights(), seen[1], strict=True):
        np.testing.assert_array_equal(kept, second)
    finetuning.finetune(settings)
    assert "is trained already (4 steps)" in capsys.readouterr().out
    (tmp_path / "data").mkdir()
    rows = "\n".join(f"word {number}\t{'yes' if number % 2 else 'no'}" for number in range(8))
    (tmp_path / "data" / "train.tsv").write_text(f"text\tlabel\n{rows}\n")
    with pytest.raises(UserError, match="--early_stopping needs a dev file"):
        prepare(dataclasses.replace(settings, data_dir=str(tmp_path / "data")))


@pytest.mark.slow
def test_it_learns_from_scratch(settings, tiny_run, tmp_path):
    config = json.loads((tiny_run / "config.json").read_text()) | {"initializer_range": 0.2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = dataclasses.replace(
        settings, init_from="", config=str(tmp_path / "config.json"), tokenizer=str(tiny_run), albert_dropout=0.0,
        num_train_steps=60, num_warmup_steps=9, learning_rate=5e-3, save_checkpoints_steps=60,
    )  # fmt: skip
    assert load_task(finetuning.finetune(settings))["metrics"]["accuracy"] == 1.0


def test_without_a_dev_file_it_says_that_nothing_was_measured_and_measures_once_there_is_one(
    settings, tmp_path, capsys
):
    shutil.copytree(settings.data_dir, tmp_path / "data", ignore=shutil.ignore_patterns("run"))
    dev = (tmp_path / "data" / "dev.tsv").rename(tmp_path / "dev.tsv")
    settings = dataclasses.replace(settings, data_dir=str(tmp_path / "data"), num_train_steps=1)
    run_finetuning.main(settings)
    said = capsys.readouterr().out
    assert "no dev file: nothing will be measured" in said
    assert "model.keras: nothing was measured, as --data_dir=" in said and "the same command measures" in said
    assert load_task(tmp_path / "run")["metrics"] == {}
    model = (tmp_path / "run" / "model.keras").read_bytes()

    dev.rename(tmp_path / "data" / "dev.tsv")
    run_finetuning.main(settings)
    accuracy = load_task(tmp_path / "run")["metrics"]["accuracy"]
    assert f"model.keras: accuracy {accuracy:.4g}" in capsys.readouterr().out
    assert (tmp_path / "run" / "model.keras").read_bytes() == model


def test_several_seeds_and_their_spread(settings, finetuned, tmp_path, capsys):
    # The first of several is the run that it would be alone, so it is found finished.
    shutil.copytree(finetuned, tmp_path / "run" / "seed-0")
    # Of the two it is the worse one here.
    worse = load_task(finetuned) | {"metrics": {"accuracy": 0.0, "macro_f1": 0.0}}
    (tmp_path / "run" / "seed-0" / "task.json").write_text(json.dumps(worse))
    folder = finetuning.finetune(dataclasses.replace(settings, seeds="0,7"))
    said = capsys.readouterr().out
    assert "seed-0 is trained already" in said and "seed-7 is trained already" not in said
    with pytest.raises(AssertionError):
        assert_same_weights(folder / "seed-7", folder / "seed-0")
    summary = json.loads((folder / "summary.json").read_text())
    values = [load_task(folder / f"seed-{seed}")["metrics"]["accuracy"] for seed in (0, 7)]
    figures = summary["metrics"]["accuracy"]
    assert figures["values"] == values and figures["median"] == statistics.median(values)
    assert figures["standard_deviation"] == pytest.approx(statistics.stdev(values))
    assert f"accuracy: median {statistics.median(values):.4g} of 2 seeds" in said
    assert summary["best_seed"] == 7 and values[1] > 0
    assert (folder / "model.keras").read_bytes() == (folder / "seed-7" / "model.keras").read_bytes()
    load(folder)


def test_a_run_that_is_stopped_between_seeds_has_no_model_yet(settings, monkeypatch, capsys):
    monkeypatch.setattr(finetuning.Finetuning, "run", lambda self: False)
    settings = dataclasses.replace(settings, seeds="2")
    assert finetuning.finetune(settings) is None
    run_finetuning.main(settings)
    assert "wrote" not in capsys.readouterr().out


OTHER_RATE = r"learning_rate=0\.001 \(now 0\.002\).*another --output_dir"


@pytest.mark.parametrize(
    ("holds", "changes", "message"),
    [
        (".", {"learning_rate": 0.002}, OTHER_RATE),
        (".", {"learning_rate": 0.002, "dryrun": True}, OTHER_RATE),
        ("seed-7", {"learning_rate": 0.002, "dryrun": True, "seeds": "0,7"}, OTHER_RATE),
        (".", {"data_dir": "MORE ROWS"}, "train_sha256="),
        (".", {"seeds": "0,7"}, "holds the run of one seed, which would lose its model"),
        ("summary.json", {}, "holds the runs of several seeds; give their --seeds"),
    ],
)
def test_another_run_is_refused_in_a_folder_that_has_one(settings, finetuned, tmp_path, holds, changes, message):
    folder = tmp_path / "run"
    if holds == "summary.json":
        folder.mkdir()
        (folder / holds).write_text("{}")
    else:
        shutil.copytree(finetuned, folder / holds)
    write_classes(tmp_path, rows=42)
    changes = {name: str(tmp_path) if value == "MORE ROWS" else value for name, value in changes.items()}
    before = files_of(folder)
    with pytest.raises(UserError, match=message):
        finetuning.finetune(dataclasses.replace(settings, **changes))
    assert files_of(folder) == before


def test_a_dry_run_leaves_nothing(class_settings, finetuned, capsys):
    """It goes where the real run could, as into the folder of the same run, and leaves that as it is."""
    before = files_of(finetuned)
    finetuning.finetune(dataclasses.replace(class_settings, dryrun=True))
    out = capsys.readouterr().out
    assert "dry run: everything worked" in out and "wrote" not in out
    assert files_of(finetuned) == before


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(settings, tmp_path):
    with pytest.raises(UserError, match=r"the loss is .*learning_rate"):
        finetuning.finetune(dataclasses.replace(settings, learning_rate=1e30))
    assert not (tmp_path / "run" / "last.keras").exists()
