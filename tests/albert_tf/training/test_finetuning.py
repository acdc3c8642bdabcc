"""Fine-tuning: what it leaves, and what it refuses. (How it goes on after a kill: test_resume.py.)"""

import dataclasses
import json
import shutil
import statistics

import numpy as np
import pytest

from albert_tf import run_finetuning
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.tasks.prediction import predict
from albert_tf.training import finetuning
from albert_tf.training.preparation import prepare
from tests.albert_tf.training.classes import write_classes
from tests.albert_tf.training.trainers import history, table
from tests.refusals import assert_refused, changed, lines, refused

pytestmark = pytest.mark.usefixtures("eagerly")


def columns_of(folder, *columns):
    return [[row[name] for name in columns] for row in history(folder)]


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def settings(class_settings, tmp_path):
    return dataclasses.replace(class_settings, output_dir=str(tmp_path / "run"))


def test_the_folder_holds_what_serving_and_later_stages_need(finetuned):
    loaded, task = load(finetuned), load_task(finetuned)
    assert type(loaded.model).__name__ == "AlbertClassifier" and loaded.tokenizer.vocab_size == 500
    calibration = task.pop("calibration")
    assert 0 <= calibration["ece"] <= calibration["ece_before"] and calibration["temperature"] > 0
    assert task | {"metrics": None} == {
        "task": "classification", "kind": "classification", "labels": ["no", "yes"], "inputs": ["text"],
        "max_seq_length": 32, "null_threshold": None, "metrics": None
    }  # fmt: skip
    best = max(float(accuracy) for (accuracy,) in columns_of(finetuned, "dev_accuracy"))
    assert task["metrics"]["accuracy"] == pytest.approx(best, abs=1e-6)
    assert load_task(finetuned / "model.keras") == task | {"calibration": calibration}
    assert columns_of(finetuned, "step", "truncated_texts", "truncated_tokens") == [[step, "0", "0"] for step in "24"]


def test_predictions_are_the_kept_models(finetuned, class_settings):
    rows, test = (table(finetuned / "predictions" / f"{split}.tsv", "\t") for split in ("dev", "test"))
    right = np.mean([row["prediction"] == row["label"] for row in rows])
    assert len(rows) == 8 and right == load_task(finetuned)["metrics"]["accuracy"]
    outputs = predict(load_keras(finetuned / "model.keras"), prepare(class_settings).evaluation[0].rows, 3, 32)
    logits = [[float(row[f"logit:{name}"]) for name in ("no", "yes")] for row in rows]
    np.testing.assert_allclose(logits, outputs, atol=1e-6)
    assert len(test) == 2 and "label" not in test[0] and test[0]["prediction"] in ("no", "yes")


def test_a_finished_run_is_left_alone_but_answers_new_files(settings, finetuned, tmp_path, capsys):
    data, folder = (
        shutil.copytree(*pair) for pair in ((settings.data_dir, tmp_path / "data"), (finetuned, tmp_path / "run"))
    )
    before = (folder / "last.keras").stat().st_mtime_ns
    (data / "test.tsv").write_text("text\n" + "good\n" * 4 + "good " * 100 + "\n")
    finetuning.finetune(dataclasses.replace(settings, data_dir=str(data)))
    said = capsys.readouterr().out
    assert "trained already" in said
    assert "truncated: train 0.00% of " in said and "test 20.00% of 5 texts (" in said
    assert (folder / "last.keras").stat().st_mtime_ns == before
    assert len(table(folder / "predictions" / "test.tsv")) == 5


@pytest.fixture(scope="module")
def wrong(tmp_path_factory, finetuned):
    """Data without a dev file, a vocabulary that is too large, and a model of other labels."""
    folder = tmp_path_factory.mktemp("wrong")
    write_classes(folder)
    (folder / "dev.tsv").unlink()
    (folder / "vocab.txt").write_text("[PAD] [UNK] [CLS] [SEP] [MASK]".replace(" ", "\n") + "\nx" * 496)
    shutil.copytree(finetuned, folder / "tuned")
    (folder / "tuned" / "task.json").write_text('{"kind": "classification", "labels": ["a", "b"]}')
    return folder


REFUSED = r"""
--task=sst3 => --task=sst3 is unknown
--data_dir=nowhere => holds no train file
--task=rte => holds no training file|no column
--init_from=nowhere => nowhere
--init_from= --config=albert_huge => albert_huge|--tokenizer
--init_from= => --init_from=... to start from trained weights, or --config
--config=albert_base_v2 => --config=albert_base_v2 and the weights of .* disagree: .*hidden_size=768
--max_seq_length=100 => =100 is more than the 48 tokens .* --input=.*whole .* --max_positions=100, and then
--max_seq_length=2 => --max_seq_length=2
--num_train_epochs=2 => exclude each other
--learning_rate=-1 => --learning_rate=-1.0 must be 0 or more
--dtype_policy=float7 => float7
--seed=3,3 => --seed=3,3 must be from 0 to 4294967295, or different ones such as 3,7,11
--seed=x => --seed=x must be
--seed=-1 => --seed=-1 must be
--seed=1,4294967296 => --seed=1,4294967296 must be
--text_column=sentence => no column 'sentence'; it has 'text', 'label'
--output_dir=/proc/nowhere => /proc/nowhere
--output_dir=/proc/nowhere --dryrun => cannot write to output folder '/proc/nowhere'
--loss=mse => --loss=mse is for --task=pairs; leave it out
--distillation_weight=0.7 => --distillation_weight=0.7 is for --teacher; give both, or leave it out
--teacher=x --distillation_weight=1.5 => --distillation_weight=1.5 must be from 0 to 1
--task=race --early_exit => --early_exit is for
--strategy=multi_worker => needs the variable TF_CONFIG
--strategy=tpu => strategy=tpu is unknown; choose one of none, mirrored, multi_worker
--keep_head => --keep_head needs a model fine-tuned for the kind classification; that of --init_from=.* has None
--keep_head --config=albert_tiny --init_from= => --keep_head=True is for --init_from; give both, or leave it out
--keep_head --init_from=WRONG/tuned => for the labels \['no', 'yes'\]; that of .* has \['a', 'b'\]
--tokenizer=WRONG/vocab.txt => 501 pieces, the model only 500; they do not belong together
--early_stopping=2 --data_dir=WRONG => --early_stopping needs a dev file
--gradient_accumulation_steps=3 --train_batch_size=8 => cannot share a batch of 8 rows in 3 parts
--gradient_accumulation_steps=6 --train_batch_size=36 => cannot share a batch of 32 rows in 6 parts
--gradient_accumulation_steps=0 => --gradient_accumulation_steps=0 must be 1 or more
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_cannot_be_run_is_named_and_leaves_nothing(settings, wrong, tmp_path, line):
    assert_refused(line.replace("WRONG", str(wrong)), settings, finetuning.finetune)
    assert not (tmp_path / "run").exists()


def test_updates_that_are_skipped_again_and_again_and_a_loss_that_is_not_finite_end_the_run():
    training = object.__new__(finetuning.Finetuning)
    training.step = 30
    training.check({"loss": 1.0, "skipped": 20})
    with refused(r"21 updates up to step 30 had gradients that are not finite.*more than 20"):
        training.check({"loss": 1.0, "skipped": 21})
    with refused("the loss is nan after step 30, nothing was saved; .*learning_rate"):
        training.check({"loss": float("nan"), "skipped": 0})


def test_a_run_that_gets_no_better_stops_early_and_keeps_the_first_of_the_best(settings, monkeypatch, capsys):
    scores, seen = iter([0.25, 0.5, 0.5, 1.0]), []

    def evaluate(self, phase):
        seen.append(self.model.get_weights())
        return {"dev_accuracy": next(scores)}

    monkeypatch.setattr(finetuning.Finetuning, "evaluate", evaluate)
    flags = "--save_checkpoints_steps=1 --early_stopping=1 --class_weights=no=0,yes=2 --num_train_steps=9"
    folder = finetuning.finetune(changed(settings, flags))
    assert columns_of(folder, "step", "dev_accuracy") == [["1", "0.25"], ["2", "0.5"], ["3", "0.5"]]
    assert "no better dev_accuracy in 1 evaluations: stopped early" in capsys.readouterr().out
    assert load_task(folder)["metrics"]["accuracy"] == 0.5
    for kept, second in zip(load_keras(folder / "model.keras").get_weights(), seen[1], strict=True):
        np.testing.assert_array_equal(kept, second)
    finetuning.finetune(changed(settings, flags))
    assert "is trained already (3 steps)" in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_dev_file_it_says_that_nothing_was_measured_and_measures_once_there_is_one(
    settings, tmp_path, capsys
):
    shutil.copytree(settings.data_dir, tmp_path / "data")
    dev = (tmp_path / "data" / "dev.tsv").rename(tmp_path / "dev.tsv")
    settings = dataclasses.replace(settings, data_dir=str(tmp_path / "data"), num_train_steps=1, calibrate=False)
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


@pytest.mark.slow
def test_several_seeds_and_their_spread(settings, finetuned, tmp_path, capsys):
    # The first of several is the run that it would be alone, so it is found finished. It is the worse one here.
    first, second = (tmp_path / "run" / f"seed-{seed}" for seed in (0, 7))
    shutil.copytree(finetuned, first)
    worse = load_task(finetuned) | {"metrics": {"accuracy": 0.0, "macro_f1": 0.0}}
    (first / "task.json").write_text(json.dumps(worse))
    folder = finetuning.finetune(dataclasses.replace(settings, seeds="0,7"))
    said = capsys.readouterr().out
    assert "seed-0 is trained already" in said and "seed-7 is trained already" not in said
    one, other = (load_keras(place / "last.keras").get_weights() for place in (first, second))
    assert any((a != b).any() for a, b in zip(one, other))
    assert (folder / "model.keras").read_bytes() == (second / "model.keras").read_bytes()
    summary = json.loads((folder / "summary.json").read_text())
    values = [0.0, load_task(second)["metrics"]["accuracy"]]
    spread = {"values": values, "median": values[1] / 2, "standard_deviation": pytest.approx(statistics.stdev(values))}
    assert spread.items() <= summary["metrics"]["accuracy"].items()
    assert f"accuracy: median {values[1] / 2:.4g} of 2 seeds" in said
    assert summary["best_seed"] == 7 and values[1] > 0
    load(folder)


# What the folder holds, and then the flags.
HELD = r"""
. | --learning_rate=2e-3 => ^give another --output_dir.*learning_rate=0\.001 \(now 0\.002\)
. | --data_dir=MORE => train_sha256=
. | --seed=0,7 => holds the run of one seed, which would lose its model
summary.json | => holds the runs of several seeds; give them by --seed
"""


@pytest.mark.parametrize("line", lines(HELD))
def test_another_run_is_refused_in_a_folder_that_has_one(settings, finetuned, tmp_path, line):
    (holds, _, line), folder = line.partition(" | "), tmp_path / "run"
    if holds == "summary.json":
        folder.mkdir()
        (folder / holds).write_text("{}")
    else:
        shutil.copytree(finetuned, folder / holds)
    write_classes(tmp_path, rows=42)
    before = files_of(folder)
    assert_refused(line.replace("MORE", str(tmp_path)), settings, finetuning.finetune)
    assert files_of(folder) == before


def test_a_dry_run_leaves_nothing(class_settings, finetuned, capsys):
    """It goes where the real run could, as into the folder of the same run, and leaves that as it is."""
    before = files_of(finetuned)
    finetuning.finetune(dataclasses.replace(class_settings, dryrun=True))
    out = capsys.readouterr().out
    assert "dry run: everything worked" in out and "wrote" not in out
    assert files_of(finetuned) == before
