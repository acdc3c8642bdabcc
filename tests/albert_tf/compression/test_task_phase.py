"""A model that was fine-tuned is made small in two phases: on text, then on its task."""

import json
import re
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertSpanPredictor, compress
from albert_tf.checkpoints.formats import load_keras
from albert_tf.compression import run as running
from albert_tf.compression.task_phase import TASK_PHASE, TEXT_PHASE, TaskPhase
from albert_tf.compression.text import make_rows, task_of
from albert_tf.loading import Loaded, load
from albert_tf.training.devices import Devices
from tests.albert_tf.compression.tiny import CONFIG, UNREAD, WORDS, report_of, write
from tests.albert_tf.refusals import assert_refused, changed, lines

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def of_module(settings, data, tokenizer, tmp_path_factory):
    """Settings for a model that was fine-tuned, in whose place is "teacher"."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "teacher").mkdir()
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 2, labels=["no", "yes"])
    task = {"task": "classification", "kind": "classification", "labels": ["no", "yes"], "inputs": ["text"]}
    teacher = write(folder / "teacher", model, tokenizer, **task, max_seq_length=16, metrics={"accuracy": 0.123})
    flags = f"--model={teacher} --output_dir={folder}/out --task=classification --data_dir={data}/classes --text= "
    flags += "--second_text_column= --num_train_steps=2 --task_train_steps=2 --vocab_from=corpus"
    return changed(settings, flags)


@pytest.fixture
def tuned(of_module, tmp_path):
    return changed(of_module, f"--output_dir={tmp_path}/out")


@pytest.fixture(scope="module")
def finished(of_module):
    """A teacher and what it was made into, by so small a rate that the second phase changes next to nothing."""
    return running.run(changed(of_module, "--task_learning_rate=1e-9")).parent


@pytest.fixture
def again(finished, of_module, tmp_path):
    """The finished run once more, moved."""
    moved = shutil.copytree(finished, tmp_path / "moved")
    return changed(of_module, f"--task_learning_rate=1e-9 --model={moved}/teacher --output_dir={moved}/out")


def assert_same_weights(one, other):
    for first, second in zip(*(load_keras(folder).get_weights() for folder in (one, other)), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_fine_tuned_model_goes_through_both_phases(finished):
    folder = finished / "out"
    assert isinstance(load(folder).model, AlbertClassifier)
    phases = report_of(folder)["phases"]
    assert list(phases) == ["start", "text", "task"] and report_of(folder)["kept"] == "task"
    # The second phase goes on with all of the first one's model.
    assert phases["task"]["scores"] == pytest.approx(phases["text"]["scores"], abs=1e-5)
    text, task = (load_keras(folder / phase) for phase in (TEXT_PHASE, TASK_PHASE))
    np.testing.assert_allclose(task.head.kernel, text.head.kernel, atol=1e-6)
    assert_same_weights(folder, folder / TASK_PHASE)
    # Its own, not the whole model's.
    for place in (folder, folder / TEXT_PHASE):
        metrics = json.loads((place / "task.json").read_text())["metrics"]
        assert metrics["accuracy"] == pytest.approx(phases["task"]["scores"]["accuracy"])


def test_a_folder_that_was_moved_goes_on_and_of_the_phases_models_the_better_is_kept(again, unmeasured, capsys):
    unmeasured |= {"distilled on text": 0.6, "distilled on the task": 0.5}
    # A head that no lesson reaches learns as little in the model that is loaded, so its optimizer is found again.
    compress.main(again)
    said, folder = capsys.readouterr(), Path(again.output_dir)
    assert all(f"{folder}/{phase} is trained already (2 steps)" in said.out for phase in (TEXT_PHASE, TASK_PHASE))
    assert f"wrote {folder}/model.keras" in said.out and "next: python -m serving.export" in said.err
    assert_same_weights(folder, folder / TEXT_PHASE)
    assert report_of(folder)["kept"] == "text"
    bold = re.search("<tr class=kept>.*?class=word>(.*?)</td>", (folder / "compress.html").read_text())
    assert bold[1] == "distilled on text"
    assert "on text alone is kept: accuracy 0.6000, after the task 0.5" in said.out
    # Nothing of a finished model is lost where the same folder is asked for another one.
    before = (folder / "model.keras").read_bytes()
    assert_refused("--task_train_steps=3 => holds a run with num_train_steps=2", again, running.run)
    assert (folder / "model.keras").read_bytes() == before


def test_no_time_is_left_for_the_second_phase(tuned, tmp_path, capsys):
    tuned = changed(tuned, "--max_hours=0.5")
    phase = TaskPhase(tuned, load(tuned.model), tmp_path / "out", Devices(), time.monotonic() - 1800)
    assert not phase.run({})
    assert "--max_hours=0.5 are over; the same command goes on with the task" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (partial(AlbertClassifier, num_classes=2, early_exit=True), {"early_exit": True}),
        (partial(AlbertSpanPredictor, joint=True), {"span_head": "joint", "early_exit": False}),
        (AlbertSpanPredictor, {"span_head": "plain"}),
    ],
)
def test_the_student_answers_as_the_whole_model_does(tuned, model, expected, tmp_path):
    whole = Loaded(model(AlbertEncoder(CONFIG, seed=2)), None, {})
    tuning = TaskPhase(tuned, whole, tmp_path, Devices(), 0.0).tuning()
    assert {name: getattr(tuning, name) for name in expected} == expected


def test_pieces_are_counted_in_the_tasks_texts(tuned):
    work = running.prepare(changed(tuned, "--num_train_steps=0"))
    assert set(WORDS) <= set(work.tokenizer.pieces) and not set(UNREAD) & set(work.tokenizer.pieces)


def test_rows_of_text_are_pairs_where_the_model_was_fine_tuned_on_pairs(settings, data, tokenizer, tmp_path):
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 1)
    task = {"task": "regression", "kind": "regression", "inputs": ["text", "other"]}
    teacher = write(tmp_path, model, tokenizer, **task, max_seq_length=16, metrics={})
    tuned = changed(settings, f"--model={teacher} --output_dir={tmp_path}/out --text=")
    work, task = running.prepare(tuned), task_of(tuned)
    examples = list(task.stream("train"))
    texts = [tuple(example.texts) for example in examples]
    assert sorted([*work.texts.train, *work.texts.held_out]) == sorted(texts)
    assert work.likeness(work.loaded.model) == pytest.approx(1)
    ours, theirs = make_rows(texts, work.tokenizer, 16), task.rows(examples, work.tokenizer, 16, training=True)
    for name, array in ours.tokens.items():
        count = sum(ours.lengths)
        assert array.read(0, count).tolist() == theirs.tokens[name].read(0, count).tolist()
    single = running.prepare(changed(tuned, f"--model={settings.model}"))
    assert {len(row) for row in single.texts.train} == {1}, "an embedder reads the texts of a pair one by one"


@pytest.mark.slow
def test_an_encoder_is_not_told_of_a_task_that_an_earlier_model_had(tuned, settings, tmp_path):
    folder = running.run(changed(tuned, "--num_train_steps=0 --task_train_steps=0"))
    assert load(folder).task
    running.run(changed(settings, f"--output_dir={folder} --num_train_steps=0"))
    assert not (folder / "task.json").exists()


def test_the_text_phases_model_takes_the_place_of_an_untrained_one(again, unmeasured, monkeypatch):
    folder = Path(again.output_dir)
    shutil.rmtree(folder / TASK_PHASE)
    shutil.copy(Path(again.model) / "model.keras", folder)
    monkeypatch.setattr(TaskPhase, "run", lambda *_: False)
    assert running.run(again) is None
    assert_same_weights(folder, folder / TEXT_PHASE)


# An edit of the data's files, and then the flags.
REFUSED = r"""
| --text=DATA/text.txt => holds no train file ending in
\tno\n;\tham\n | => of labels \['no', 'yes'\], and --data_dir=.* has labels \['ham', 'yes'\]
\n;\tmore\n | --second_text_column=more => of texts a row 1, and --data_dir=.* has texts a row 2
; | --num_train_steps=0 --task_train_steps=600 => --task_train_steps=600 is of a second phase
; | --task_train_batch_size=32 => 3 devices cannot share a batch of 32 rows.*--task_train_batch_size
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_the_task_cannot_be_trained_on_is_said_before_the_text(tuned, data, tmp_path, line):
    edit, _, line = line.partition("| ")
    for file in shutil.copytree(data / "classes", tmp_path / "data").iterdir():
        old, _, new = edit.strip().replace("\\t", "\t").replace("\\n", "\n").partition(";")
        file.write_text(file.read_text().replace(old, new))
    if not edit:
        (tmp_path / "data" / "train.tsv").unlink()
    tuned = changed(tuned, f"--data_dir={tmp_path}/data --train_batch_size=9")
    assert_refused(line.replace("DATA", str(data)), tuned, lambda one: running.run(one, Devices(replicas=3)))
    assert not Path(tuned.output_dir).exists()


def test_a_batch_of_the_task_that_the_devices_share_is_taken(tuned, tmp_path):
    tuned = changed(tuned, "--task_train_batch_size=30")
    TaskPhase(tuned, load(tuned.model), tmp_path / "out", Devices(replicas=3), 0.0).check()
