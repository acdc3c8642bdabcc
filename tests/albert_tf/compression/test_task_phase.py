"""A model that was fine-tuned is made small in two phases: on text, then on its task."""

import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import pytest

from albert_tf import AlbertClassifier, AlbertEncoder, compress
from albert_tf.checkpoints.formats import load_keras
from albert_tf.compression import run as running
from albert_tf.compression.start import TableRow
from albert_tf.compression.text import make_rows, task_of
from albert_tf.loading import load
from albert_tf.training.devices import Devices
from tests.albert_tf.compression.tiny import CONFIG, UNREAD, WORDS, report_of, write

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def tuned(settings, data, tokenizer, tmp_path):
    """Settings for a model that was fine-tuned."""
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 2, labels=["no", "yes"])
    task = {"task": "classification", "kind": "classification", "labels": ["no", "yes"], "inputs": ["text"]}
    (tmp_path / "teacher").mkdir()
    teacher = write(tmp_path / "teacher", model, tokenizer, **task, max_seq_length=16, metrics={"accuracy": 0.123})
    return dataclasses.replace(
        settings, model=str(teacher), output_dir=str(tmp_path / "out"), task="classification", text="",
        data_dir=str(data / "classes"), second_text_column="", held_out_rows=16, num_train_steps=2, task_train_steps=2,
        vocab_from="corpus",
    )  # fmt: skip


def test_a_fine_tuned_model_goes_through_both_phases(tuned, capsys):
    # Of so small a rate the second phase changes next to nothing: it goes on with all of the first one's model.
    compress.main(dataclasses.replace(tuned, task_learning_rate=1e-9))
    folder = Path(tuned.output_dir)
    assert isinstance(load(folder).model, AlbertClassifier)
    phases = report_of(folder)["phases"]
    assert list(phases) == ["start", "text", "task"]
    assert phases["task"]["scores"] == pytest.approx(phases["text"]["scores"], abs=1e-5)
    text, task = (load_keras(folder / phase) for phase in (running.TEXT_PHASE, running.TASK_PHASE))
    np.testing.assert_allclose(task.head.kernel, text.head.kernel, atol=1e-6)
    np.testing.assert_allclose(load_keras(folder).head.kernel, task.head.kernel)
    # Its own, not the whole model's.
    for place in (folder, folder / running.TEXT_PHASE):
        metrics = json.loads((place / "task.json").read_text())["metrics"]
        assert metrics["accuracy"] == pytest.approx(phases["task"]["scores"]["accuracy"])
    said = capsys.readouterr()
    assert f"wrote {folder}/model.keras" in said.out and "next: python -m serving.export" in said.err


def test_the_first_phase_is_not_gone_through_again(tuned, capsys):
    """The head, which no lesson reaches, learns as little in the model that is loaded."""
    settings = dataclasses.replace(tuned, task_train_steps=1)
    first = running.run(settings)
    before = (first / running.TEXT_PHASE / "history.csv").read_text()
    capsys.readouterr()
    running.run(settings)
    assert f"{first / running.TEXT_PHASE} is trained already (2 steps)" in capsys.readouterr().out
    assert (first / running.TEXT_PHASE / "history.csv").read_text() == before


@pytest.mark.parametrize("text_is_better", [True, False])
def test_of_the_phases_models_the_better_is_kept(tuned, tmp_path, monkeypatch, text_is_better, capsys):
    work, folder = running.prepare(tuned), tmp_path / "out"
    (folder / running.TASK_PHASE).mkdir(parents=True)
    for place, words in ((folder, "text"), (folder / running.TASK_PHASE, "task")):
        (place / "model.keras").write_text(words)
    monkeypatch.setattr(running, "load_keras", lambda place: (place / "model.keras").read_text())
    scores = (0.6, 0.5) if text_is_better else (0.5, 0.5)
    done = {name: TableRow(name, 1, {"accuracy": score}) for name, score in zip(("text", "task"), scores)}
    best = running._better(work, folder, done, Devices())
    assert best == list(done)[-1] == (folder / "model.keras").read_text() == ("text" if text_is_better else "task")
    assert ("distilled on text alone is the better one: accuracy 0.6" in capsys.readouterr().out) is text_is_better


def test_no_time_is_left_for_the_second_phase(tuned, tmp_path, capsys):
    settings = dataclasses.replace(tuned, max_hours=0.5)
    work, began = running.prepare(settings), time.monotonic() - 1800
    assert not running._task_phase(settings, work, tmp_path / "out", Devices(), began)
    assert "--max_hours=0.5 are over; the same command goes on with the task" in capsys.readouterr().out


def test_pieces_are_counted_in_the_tasks_texts(tuned):
    work = running.prepare(dataclasses.replace(tuned, num_train_steps=0))
    assert set(WORDS) <= set(work.tokenizer.pieces) and not set(UNREAD) & set(work.tokenizer.pieces)


def test_rows_of_text_are_pairs_where_the_model_was_fine_tuned_on_pairs(settings, data, tokenizer, tmp_path):
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 1)
    task = {"task": "regression", "kind": "regression", "inputs": ["text", "other"]}
    teacher = write(tmp_path, model, tokenizer, **task, max_seq_length=16, metrics={})
    tuned = dataclasses.replace(settings, model=str(teacher), output_dir=str(tmp_path / "out"), text="")
    work = running.prepare(tuned)
    examples = list(task_of(tuned).stream("train"))
    assert sorted([*work.texts.train, *work.texts.held_out]) == sorted(tuple(example.texts) for example in examples)
    assert work.likeness(work.loaded.model) == pytest.approx(1)
    rows = make_rows([tuple(example.texts) for example in examples], work.tokenizer, 16)
    of_task = task_of(tuned).rows(examples, work.tokenizer, 16, training=True)
    assert rows.tokens.keys() == of_task.tokens.keys()
    for name in rows.tokens:
        np.testing.assert_array_equal(
            rows.tokens[name].read(0, sum(rows.lengths)), of_task.tokens[name].read(0, sum(rows.lengths))
        )
    single = running.prepare(dataclasses.replace(tuned, model=settings.model))
    assert {len(row) for row in single.texts.train} == {1}, "an embedder reads the texts of a pair one by one"
