"""What is kept between two commands is taken for what it is: of which settings, corpus, machine and versions."""

import csv
import dataclasses
import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from albert_tf.training import run_folder
from experiments import data, runs, session, tasks, timings
from experiments.columns import COLUMNS
from experiments.measures import MEASURES, OF_TASKS
from experiments.run import TableSettings, main
from experiments.session import Session
from tests.experiments.conftest import write
from tfrecords.base.errors import UserError

RESULT = {
    "masked_lm_loss": 5.0, "masked_lm_accuracy": 0.2, "updates": 4, "parameters": 100, "training_seconds": 1.5,
    "machine": "a machine",
}  # fmt: skip


def settings(folder, **others):
    return TableSettings(**{"table": "pair", "output_dir": str(folder), "scale": "tiny"} | others)


def finish(run, **noted):
    """Leaves what a run leaves, as far as no model is loaded."""
    write(run.folder / "result.json", RESULT)
    run.recipe.albert_config().to_json(run.folder / "config.json")
    write(run.model_folder / "run.json", dataclasses.asdict(run.settings(run.folder)) | noted)


@pytest.fixture
def folder(tmp_path, settings_folder):
    """Both rows of a table with both seeds, done."""
    opened = Session(settings(tmp_path / "out"), settings_folder)
    for seed in opened.seeds:
        for name in opened.recipes:
            finish(opened.run(name, seed))
    return tmp_path / "out"


@pytest.fixture
def timed(monkeypatch):
    """Timings that are made up; how often they were made."""
    made = []

    def times(done, *_):
        made.append(list(done))
        return {name: float(len(made)) for name in done}

    monkeypatch.setattr(timings, "training_times", times)
    monkeypatch.setattr(timings, "answer_times", lambda done, *_: dict.fromkeys(done, 7.0))
    monkeypatch.setattr(Session, "examples", lambda self, recipe: None)
    return made


def lines(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def changed(settings_folder, tmp_path, file, **values):
    """The settings files with one of them changed."""
    copy = shutil.copytree(settings_folder, tmp_path / "settings", dirs_exist_ok=True)
    path = copy / file
    write(path, json.loads(path.read_text()) | values)
    return copy


def test_a_measure_that_ends_does_not_end_the_table(folder, settings_folder, monkeypatch, capsys):
    def fails(asked):
        if asked.run.seed == 1 and asked.run.recipe.config["intermediate_size"] == 16:
            raise UserError("there is nothing to ask")
        return {"nsp_accuracy": 0.5, "sop_accuracy": 0.25}

    monkeypatch.setitem(session.MEASURES, "pair_tasks", fails)
    with pytest.raises(UserError, match="without result: plain, seed 1, pair_tasks; the same command tries again"):
        main(settings(folder, stages="measure,page"), settings_folder)
    assert "plain, seed 1, pair_tasks ended: there is nothing to ask" in capsys.readouterr().err
    assert [line["sop_accuracy"] for line in lines(folder / "pair-tiny.csv")] == ["", "0.25", "0.25", "0.25"]


@pytest.mark.parametrize(
    ("finetuning", "message"),
    [
        ({"num_train_step": 2}, "finetuning: unknown setting 'num_train_step'; did you mean 'num_train_steps'"),
        ({"num_train_steps": 2, "num_train_epochs": 1.0}, "exclude each other"),
        ({"num_train_steps": 2, "seed": 3}, "finetuning setting 'seed' is given by the runner"),
    ],
)
def test_a_wrong_fine_tuning_is_met_at_the_door(settings_folder, tmp_path, finetuning, message):
    wrong = changed(settings_folder, tmp_path, "scales/tiny.json", finetuning=finetuning)
    Session(settings(tmp_path), wrong)  # Whose table has no tasks.
    with pytest.raises(UserError, match=message):
        Session(settings(tmp_path, table="asked"), wrong)


def test_the_folders_of_tasks_are_met_at_the_door(settings_folder, tmp_path):
    for table in ("asked", "exits"):
        with pytest.raises(UserError, match=r"no folder '.*glue/SST-2'; --tasks_dir names the one"):
            Session(settings(tmp_path, table=table, tasks_dir="glue"), settings_folder)
    (tmp_path / "SST-2").mkdir()
    Session(settings(tmp_path, table="asked", tasks_dir=str(tmp_path)), settings_folder)
    Session(settings(tmp_path, tasks_dir="glue"), settings_folder)


def test_times_are_of_the_row_and_of_the_machine_that_they_were_taken_of(folder, settings_folder, tmp_path, timed):
    main(settings(folder, stages="time,page"), settings_folder)
    (line, *_) = lines(folder / "pair-tiny.csv")
    assert (line["seconds_per_step"], line["inference_ms"], line["timed_on"]) == ("1", "7", runs.machine())
    assert f"on a machine; timed on {runs.machine()}" in (folder / "pair-tiny.md").read_text()
    main(settings(folder, stages="time,page"), settings_folder)
    assert len(timed) == 1
    kept = json.loads((folder / "pair-tiny-timings.json").read_text())
    write(folder / "pair-tiny-timings.json", kept | {"machine": "another"})
    main(settings(folder, stages="time,page"), settings_folder)
    assert len(timed) == 2
    # Of before the machine was noted.
    write(folder / "pair-tiny-timings.json", {name: value for name, value in kept.items() if name != "machine"})
    main(settings(folder, stages="time,page"), settings_folder)
    assert len(timed) == 2 and lines(folder / "pair-tiny.csv")[0]["seconds_per_step"] == "1"
    assert "timed_on" not in lines(folder / "pair-tiny.csv")[0]
    # The row is another since.
    others = changed(settings_folder, tmp_path, "tables/pair/plain.json", config={"intermediate_size": 20})
    finish(Session(settings(folder), others).run("plain", 1))
    main(settings(folder, stages="page"), others)
    assert [(line["row"], line["seconds_per_step"]) for line in lines(folder / "pair-tiny.csv")] == [
        ("plain", ""), ("wide", "1"), ("wide", "1"),
    ]  # fmt: skip


def test_rows_limit_what_is_trained_and_not_the_page(folder, settings_folder, timed, monkeypatch, capsys):
    asked = []
    monkeypatch.setitem(session.MEASURES, "pair_tasks", lambda one: asked.append(one.run.recipe.config) or {})
    main(settings(folder, rows="wide"), settings_folder)
    assert "2 runs are done, 0 to make" in capsys.readouterr().out
    assert [config["intermediate_size"] for config in asked] == [24, 24] and timed == [["plain", "wide"]]
    assert [line["row"] for line in lines(folder / "pair-tiny.csv")] == ["plain", "plain", "wide", "wide"]
    assert "Not run" not in (folder / "pair-tiny.md").read_text()


def test_another_corpus_is_refused_in_a_folder_that_has_one(settings_folder, tmp_path, monkeypatch):
    recipe = Session(settings(tmp_path), settings_folder).recipes["plain"]
    built = []
    monkeypatch.setattr(data, "load_tokenizer", lambda path: None)
    monkeypatch.setattr(data, "build", lambda corpus, *_, **__: built.append(corpus))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "text.txt").write_text("A text.\n")
    (tmp_path / "b" / "text.txt").write_text("Another text.\n")
    monkeypatch.setattr(data.train_tokenizer, "main", lambda settings: None)
    folder = tmp_path / "data"
    folder.mkdir()
    data.examples(recipe, f"{tmp_path}/a/*.txt", folder)
    data.examples(recipe, f"{tmp_path}/a/text.txt", folder)
    with pytest.raises(UserError, match=r"is not what '.*data' was built of \(text.txt of 8 bytes, not text.txt of 14"):
        data.examples(recipe, f"{tmp_path}/b/*.txt", folder)
    assert built == [f"{tmp_path}/a/*.txt", f"{tmp_path}/a/text.txt"]
    (folder / "corpus.json").unlink()  # As a folder of before has none.
    data.examples(recipe, f"{tmp_path}/b/*.txt", folder)


@pytest.mark.parametrize(("kind", "suffix"), [("sentencepiece", ".model"), ("bpe", ".json")])
def test_a_vocabulary_of_either_kind_is_found(settings_folder, tmp_path, monkeypatch, kind, suffix):
    recipe = Session(settings(tmp_path), settings_folder).recipes["plain"]
    recipe = dataclasses.replace(recipe, vocabulary=recipe.vocabulary | {"kind": kind, "hard_vocab_limit": False})
    loaded = []
    monkeypatch.setattr(data, "load_tokenizer", loaded.append)
    monkeypatch.setattr(data, "build", lambda *_, **__: None)
    (tmp_path / "text.txt").write_text("A text of a few words.\n" * 50)
    data.examples(recipe, str(tmp_path / "text.txt"), tmp_path)
    assert loaded[0].endswith(suffix) and (tmp_path / loaded[0]).is_file()


def test_what_was_measured_with_other_settings_is_measured_again(folder, settings_folder, tmp_path, monkeypatch):
    made = []

    def sst2(asked):
        made.append(asked)
        return {"sst2": len(made) / 8}

    monkeypatch.setitem(session.OF_TASKS, "sst2", sst2)
    for name in ("common_examples", "distances"):
        monkeypatch.setitem(session.MEASURES, name, lambda asked: {})
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\n")

    def score(of=settings_folder, **others):
        asked = settings(folder, table="asked", seeds=1, stages="measure,page", **{"tasks_dir": str(tmp_path)} | others)
        main(asked, of)
        return lines(folder / "asked-tiny.csv")[0].get("sst2")

    assert score() == score() == score(tasks_dir="") == "0.125"
    other = changed(settings_folder, tmp_path, "scales/tiny.json", finetuning={"num_train_steps": 9})
    assert score(other, tasks_dir="") is None  # It is of other settings, and cannot be measured again.
    assert score(other) == score(other) == "0.25"
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    tasks.digest.cache_clear()
    assert score(other) == "0.375"
    # Of before settings were noted.
    write(Session(settings(folder), settings_folder).run("plain", 1).folder / "measured-sst2.json", {"sst2": 0.75})
    assert score(other) == score() == "0.75"


def test_a_run_of_other_defaults_is_not_taken_for_one_of_todays(folder, settings_folder):
    opened = Session(settings(folder), settings_folder)
    run = opened.run("plain", 1)
    finish(run, train_data="elsewhere", gradient_accumulation_steps=1, memory_gb=3.0, gone=1)
    assert run.result == RESULT
    (run.model_folder / "run.json").write_text("{}")  # What is not noted counts as equal.
    assert run.result == RESULT
    for noted in ({"beta_2": 0.98}, {"records": [{"short_seq_prob": 0.3}]}):
        finish(run, **noted)
        name = "beta_2=0.98 .now 0.999" if "beta_2" in noted else "short_seq_prob=0.3 .now 0.1"
        with pytest.raises(UserError, match=rf"was trained with {name}\): defaults have changed since"):
            opened.results()
    finish(run)
    write(run.folder / "config.json", run.recipe.albert_config().to_dict() | {"layer_norm_eps": 1e-5})
    with pytest.raises(UserError, match="layer_norm_eps=1e-05"):
        opened.train()


def test_a_run_goes_on_in_a_folder_that_was_moved(folder, settings_folder, tmp_path, monkeypatch):
    """Its model folder still says where the data and the configuration once were."""
    run = Session(settings(folder), settings_folder).run("plain", 1)
    (run.folder / "result.json").unlink()
    began = dataclasses.asdict(run.settings(tmp_path / "before")) | {"config": "before", "output_dir": "before"}
    write(run.model_folder / "run.json", began)
    (run.model_folder / run_folder.LAST).touch()

    class Reached(Exception):
        pass

    def pretrain(settings, free):
        run_folder.check_claim(run.model_folder, settings, free, {})
        with pytest.raises(UserError, match="seed=1"):
            run_folder.check_claim(run.model_folder, dataclasses.replace(settings, seed=2), free, {})
        raise Reached

    monkeypatch.setattr(runs, "pretrain", pretrain)
    with pytest.raises(Reached):
        run.train(tmp_path / "after")


def test_the_page_says_the_whole_command(folder, settings_folder, tmp_path):
    def said(of=settings_folder, **others):
        opened = Session(settings(folder, **others), of)
        return opened._text(opened.results(), "a.csv", "a.png").split("    ")[1].split("\n")[0]

    plain = "python -m experiments.run pair --output_dir=out --corpus='text/*.jsonl.gz' --scale=tiny --seeds=2"
    assert said() == plain
    assert "--corpus='text/*.jsonl.gz' --tasks_dir=glue --scale" in said(table="asked")
    for path in (folder / "runs").glob("*/seed-1"):
        shutil.rmtree(path)
    assert said() == plain.replace("--seeds=2", "--seeds=1 --first_seed=2")
    assert said(changed(settings_folder, tmp_path, "scales/tiny.json", backend="jax")).startswith("KERAS_BACKEND=jax p")


def test_the_legend_says_how_tasks_were_measured(folder, settings_folder):
    assert {column.measure for column in COLUMNS.values()} == {"", *MEASURES, *OF_TASKS}
    opened = Session(settings(folder, table="asked"), settings_folder)
    assert "the best evaluation on the dev file" in opened._text(opened.results(), "a", "b")


def test_a_dry_run_is_under_the_backend_of_its_scale(settings_folder, tmp_path, monkeypatch):
    of_jax = changed(settings_folder, tmp_path, "scales/tiny.json", backend="jax")
    write(of_jax / "scales" / "big.json", json.loads((of_jax / "scales" / "tiny.json").read_text()))
    write(of_jax / "scales" / "tiny.json", json.loads((settings_folder / "scales" / "tiny.json").read_text()))
    with pytest.raises(UserError, match="KERAS_BACKEND=jax"):
        main(settings(tmp_path / "out", scale="big", dryrun=True), of_jax)
    with pytest.raises(UserError, match="there is no result yet"):  # Without a corpus.
        main(settings(tmp_path / "out", dryrun=True), of_jax)


def test_a_dry_run_leaves_another_one_alone(settings_folder, tmp_path):
    other = tmp_path / "out" / ".dryrun" / "results"
    other.mkdir(parents=True)
    with pytest.raises(UserError, match="there is no result yet"):  # Without a corpus.
        main(settings(tmp_path / "out", dryrun=True), settings_folder)
    assert list((tmp_path / "out").iterdir()) == [other.parent] and other.is_dir()


def test_the_machine_has_its_accelerators_and_jax(monkeypatch):
    assert "jax" not in runs.machine()
    gpu = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100")
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda: [gpu, gpu]))
    monkeypatch.setattr(runs.keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(runs.metadata, "version", lambda name: "1.2.3")
    assert ", 2 x NVIDIA H100, tensorflow " in runs.machine() and runs.machine().endswith(", jax 1.2.3")
