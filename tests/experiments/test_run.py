"""A table is run once: what is done is kept, what was killed goes on, and what cannot be done is said."""

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from albert_tf.training.loop import Training
from experiments import page, session, timings
from experiments.run import TableSettings, main
from experiments.tables import Row, Table
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.reader import read_examples

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("eagerly")


def settings(folder, corpus="", **others):
    return TableSettings(
        **{"table": "pair", "output_dir": str(folder), "corpus": str(corpus), "scale": "tiny"} | others
    )


# What needs it is slow: four runs are trained, whose best checkpoint is made to be the first, so that a measure of it
# differs.
@pytest.fixture(scope="module")
def done(tmp_path_factory, settings_folder, topics, eagerly):
    folder, few = tmp_path_factory.mktemp("done"), tmp_path_factory.mktemp("corpus") / "topics.txt"
    few.write_text(topics.read_text()[:150_000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "_score", lambda self, figures: -float(self.step))
        main(settings(folder, few, stages="train"), settings_folder)
    main(settings(folder, few, rows="plain", seeds=1, stages="measure,page"), settings_folder)
    return folder


def lines(folder):
    with open(folder / "pair-tiny.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_line_for_each_run(done):
    found = lines(done)
    assert [(line["row"], line["seed"]) for line in found] == [(r, s) for r in ("plain", "wide") for s in "12"]
    assert all(line["updates"] == "2" and float(line["training_seconds"]) > 0 for line in found)
    assert all(line["seconds_per_step"] == line["inference_ms"] == "" for line in found)
    assert len({line["masked_lm_loss"] for line in found}) == 4
    plain, wide = (int(found[n]["parameters"]) for n in (0, 2))
    assert wide - plain == 8 * (8 + 1 + 8)  # Eight more units inside, of 8 inputs, a bias and 8 outputs.
    text = (done / "pair-tiny.md").read_text()
    assert (
        text.startswith("# A pair\n\nIs wide better?\n") and "| wide |" in text and (done / "pair-tiny.png").is_file()
    )


@pytest.mark.slow
def test_a_pair_head_is_asked_both_tasks(done):
    line = lines(done)[0]
    assert 0 <= float(line["sop_accuracy"]) <= 1 and 0 <= float(line["nsp_accuracy"]) <= 1
    (nsp,) = (
        folder for folder in (done / "data").glob("examples-*")
        if json.loads((folder / "manifest.json").read_text())["pair_task"] == "nsp"
    )  # fmt: skip
    assert list(nsp.glob("eval-*"))


@pytest.fixture
def tasks_dir(tmp_path):
    folder = tmp_path / "tasks" / "SST-2"
    folder.mkdir(parents=True)
    lines = "".join(f"this is {word} as it is\t{label}\n" for word, label in (("good", 1), ("bad", 0)) * 4)
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(f"sentence\tlabel\n{lines}")
    return str(folder.parent)


def asked(done, settings_folder, table, **others):
    """The line of the first run."""
    main(settings(done, table=table, seeds=1, stages="measure,page", **others), settings_folder)
    with open(done / f"{table}-tiny.csv", newline="") as file:
        return next(csv.DictReader(file))


@pytest.mark.slow
def test_runs_that_are_done_are_asked_what_other_tables_ask(done, settings_folder, tasks_dir, capsys):
    """By their newest model, which is not the best."""
    line = asked(done, settings_folder, "asked")
    assert "without --tasks_dir there are no figures of sst2" in capsys.readouterr().err and "sst2" not in line
    line = asked(done, settings_folder, "asked", tasks_dir=tasks_dir)
    # Its own examples are the scale's.
    assert float(line["common_loss"]) == pytest.approx(float(line["masked_lm_loss"]), abs=1e-4)
    assert float(line["common_accuracy"]) == pytest.approx(float(line["masked_lm_accuracy"]), abs=1e-4)
    assert line["l2_2"] == line["l2_last"] and "l2_3" not in line
    assert float(line["l2_mean"]) == pytest.approx((float(line["l2_1"]) + float(line["l2_2"])) / 2, rel=1e-4)
    assert float(line["sst2"]) in {number / 8 for number in range(9)}
    assert not list((done / "runs").rglob("task-*"))


@pytest.mark.slow
def test_rows_leave_early(done, settings_folder, tasks_dir):
    line = asked(done, settings_folder, "exits", tasks_dir=tasks_dir)
    assert float(line["exit_steps_all"]) == 2 and 1 <= float(line["exit_steps_1"]) <= 2
    assert 0 <= float(line["exit_score_1"]) <= 1


@pytest.mark.slow
def test_what_is_held_out_is_not_trained_on(done):
    data = next(
        folder for folder in (done / "data").glob("examples-*")
        if json.loads((folder / "manifest.json").read_text())["pair_task"] == "sop"
    )  # fmt: skip
    manifest = json.loads((data / "manifest.json").read_text())["splits"]
    assert manifest["eval"]["documents"] > 0 and manifest["train"]["documents"] > 0
    rows = {split: _texts(data, split == "train") for split in ("train", "eval")}
    # A few sentences stand in several of Python's help topics.
    assert rows["train"] and len(rows["train"] & rows["eval"]) < 0.1 * len(rows["eval"])


def _texts(data, training):
    """The long rows of a split with their words unmasked."""
    paths = str(data) if not training else ",".join(map(str, sorted(data.glob("train-*"))))
    rows = set()
    for batch in read_examples(paths, 8, training=False).as_numpy_iterator():
        ids, places = batch["input_ids"].copy(), batch["masked_lm_positions"]
        counted = batch["masked_lm_weights"] > 0
        np.put_along_axis(ids, np.where(counted, places, 0), np.where(counted, batch["masked_lm_ids"], ids[:, :1]), 1)
        rows |= {bytes(row) for row in ids if (row > 0).sum() > 12}
    return rows


@pytest.mark.slow
def test_what_is_done_is_kept(done, settings_folder, capsys, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in (done / "runs").rglob("*") if path.is_file()}
    monkeypatch.setattr(Training, "run", None)
    main(settings(done, stages="train"), settings_folder)  # And asks for no corpus.
    assert "4 runs are done, 0 to make" in capsys.readouterr().out
    main(settings(done, rows="plain", seeds=1, stages="measure,page"), settings_folder)
    assert before == {path: path.stat().st_mtime_ns for path in (done / "runs").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_two_processes_share_the_work(done, settings_folder, tmp_path, monkeypatch, capsys):
    """A run that another process is at is left to it; what that has made meanwhile is not made again."""
    folder = tmp_path / "out"
    shutil.copytree(done, folder)
    opened = session.Session(settings(folder), settings_folder)
    taken, finished, open_one = (opened.run(*one) for one in (("plain", 1), ("wide", 1), ("plain", 2)))
    kept = finished.folder / "kept.json"
    for run in (taken, finished, open_one):
        (run.folder / "result.json").rename(run.folder / "kept.json")
    made = []

    def examples(self, recipe):
        if kept.exists():
            kept.rename(finished.folder / "result.json")  # The other process is done with it just now.

    def train(self, data):
        made.append(self)
        (self.folder / "kept.json").rename(self.folder / "result.json")

    monkeypatch.setattr(session.Session, "examples", examples)
    monkeypatch.setattr(session.Run, "_train", train)
    with files.locked(taken.folder):
        opened.train()
    assert made == [open_one]
    said = capsys.readouterr()
    assert "1 runs are done, 3 to make" in said.out and "another process was making: plain, seed 1" in said.err


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_killed_and_started_again_is_as_never_killed(done, settings_folder, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "out"
    shutil.copytree(done / "data", folder / "data")
    again, step = settings(folder, stages="train,page"), Training._make_step

    def dies(self, batches):
        if "seed-1" in str(self.folder) and self.step == 1:
            raise Killed
        step(self, batches)

    monkeypatch.setattr(Training, "_make_step", dies)
    with pytest.raises(Killed):
        main(again, settings_folder)
    assert not list(folder.glob("pair-tiny*"))
    monkeypatch.setattr(Training, "_make_step", step)
    main(again, settings_folder)
    assert "Resuming at step 1 of 2" in capsys.readouterr().out
    figures = ("row", "seed", "masked_lm_loss", "masked_lm_accuracy", "pair_accuracy")
    assert [[line[name] for name in figures] for line in lines(folder)] == [
        [line[name] for name in figures] for line in lines(done)
    ]
    assert not list((folder / "runs").rglob("last.keras"))


@pytest.mark.slow
def test_a_run_that_ends_does_not_end_the_table(done, settings_folder, tmp_path, monkeypatch, capsys):
    folder, train = tmp_path / "out", session.Run.train
    shutil.copytree(done / "data", folder / "data")

    def fails(self, data):
        if self.recipe.config["intermediate_size"] == 16:
            raise UserError("the held-out loss is nan")
        train(self, data)

    monkeypatch.setattr(session.Run, "train", fails)
    with pytest.raises(UserError, match="without result: plain, seed 1"):
        main(settings(folder, stages="train,page", seeds=1), settings_folder)
    assert "plain, seed 1 ended: the held-out loss is nan" in capsys.readouterr().err
    assert [line["row"] for line in lines(folder)] == ["wide"]


def test_a_row_that_this_version_does_not_know_is_left_out(settings_folder, tmp_path, monkeypatch, capsys):
    table = Table.read("pair", settings_folder)
    table.rows.append(Row(name="new", title="new", config={"wormholes": 3}))
    monkeypatch.setattr(Table, "read", lambda name, folder: table)
    opened = session.Session(settings(tmp_path), settings_folder)
    assert list(opened.recipes) == ["plain", "wide"]
    assert "row new is left out: unknown configuration key 'wormholes'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"table": "none"}, "there is no table 'none'; choose one of asked, exits, pair"),
        ({"scale": "huge"}, "there is no scale 'huge'; choose one of tiny"),
        ({"rows": "plain,tall"}, "table pair has no row 'tall'; it has plain, wide"),
        ({"stages": "train,sleep"}, "'sleep' is none of train, measure, time, page"),
        ({"stages": "page"}, "there is no result yet"),
        ({}, "give --corpus="),
    ],
)
def test_what_cannot_be_done_is_said(settings_folder, tmp_path, wrong, message):
    if not wrong:
        with pytest.raises(UserError, match=message):
            opened = session.Session(settings(tmp_path), settings_folder)
            opened.examples(opened.recipes["plain"])
        return
    with pytest.raises(UserError, match=message):
        main(settings(tmp_path, **wrong), settings_folder)


def test_steps_and_answers_are_timed_in_turn(monkeypatch):
    calls = []
    times = timings.medians({name: lambda name=name: calls.append(name) for name in "ab"}, 3)
    assert calls == list("ab" * 5) and times.keys() == {"a", "b"} and all(value > 0 for value in times.values())


def test_a_step_is_timed_with_the_attention_that_it_was_trained_with(settings_folder, tmp_path, monkeypatch):
    run = session.Session(settings(tmp_path), settings_folder).run("plain", 1)
    recipe = dataclasses.replace(run.recipe, training=run.recipe.training | {"fused_attention": True})
    given = []

    def make_steps(*arguments):
        given.append(arguments)
        raise UserError("far enough")

    monkeypatch.setattr(timings, "Pretraining", lambda asked, *_: mock.MagicMock(settings=asked))
    monkeypatch.setattr(timings, "make_steps", make_steps)
    with pytest.raises(UserError, match="far enough"):
        timings.training_times({"plain": dataclasses.replace(run, recipe=recipe)}, {"plain": tmp_path}, 1)
    assert given[0][2:] == (False, 1, True)


@pytest.mark.slow
def test_published_results_make_the_page_again(done, settings_folder, tmp_path, monkeypatch):
    """A page is a function of its CSV file; --publish puts it where its markers are."""
    monkeypatch.setattr(session, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    doc = tmp_path / "docs" / "some.md"
    doc.write_text("<!-- experiments.run pair: begin -->\n<!-- experiments.run pair: end -->\n")
    given = settings(tmp_path / "out", results=str(done / "pair-tiny.csv"), publish=True)
    main(given, settings_folder)
    assert (tmp_path / "out" / "pair-tiny.md").read_text() == (done / "pair-tiny.md").read_text()
    inside = (done / "pair-tiny.md").read_text().removeprefix("# A pair\n\n")
    for name in ("pair-tiny.csv", "pair-tiny.png"):
        assert (tmp_path / "docs" / "experiments" / name).is_file()
        inside = inside.replace(f"({name})", f"(experiments/{name})")
    inside = inside.replace("[pair-tiny.csv]", "[experiments/pair-tiny.csv]").split("Every run")[0]
    assert "reading_the_tables.md" in doc.read_text() and "Welch" not in doc.read_text()
    assert inside in doc.read_text() and page.insert(doc, "pair", "")


@pytest.mark.slow
def test_killed_by_the_machine(topics, tmp_path):
    """kill -9 in the middle of a run, twice; then the same command ends, and once more has nothing to do."""
    command = [sys.executable, "-m", "experiments.run", "sharing", f"--output_dir={tmp_path}", f"--corpus={topics}"]
    command += ["--scale=tiny", "--rows=all_narrow,all_middle", "--seeds=1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(2):
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line.startswith(("Starting at", "Resuming at")):
                    time.sleep(3)
                    process.send_signal(signal.SIGKILL)
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    table = (tmp_path / "sharing-tiny.md").read_text()
    assert "all shared, narrow embeddings" in table and "Not run: all shared, wide embeddings" in table
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "2 runs are done, 0 to make" in again.stdout and (tmp_path / "sharing-tiny.md").read_text() == table


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("table", ["depth", "sharing"])
def test_dryrun_walks_a_whole_table(run_module, topics, tmp_path, table):
    command = ("experiments.run", table, f"--output_dir={tmp_path}/out", f"--corpus={topics}", "--dryrun")
    ended = run_module(*command, timeout=1000)
    assert ended.returncode == 0, ended.stderr
    assert "dry run: built examples, trained, measured and wrote the page; nothing is kept" in ended.stdout
    assert list(tmp_path.iterdir()) == []
