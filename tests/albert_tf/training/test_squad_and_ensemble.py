"""SQuAD through run_finetuning's loop, and ensembles of what it leaves behind."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.squad.data import read_null_odds, read_predictions
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.training.ensemble import EnsembleSettings, combine, ensemble
from albert_tf.training.finetuning import finetune
from tests.albert_tf.training.trainers import history
from tests.refusals import assert_refused, changed, lines, refused

pytestmark = pytest.mark.usefixtures("eagerly")

COLOURS = ("red", "blue", "green", "white")


def write_squad(folder, version, rows=8):
    """Passages that say what colour a thing has; in 2.0 every other question is about a thing that is not there."""
    folder.mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        paragraphs = []
        for number in range(rows):
            colour = COLOURS[number % 4]
            context = f"{'the object is a value ' * (number % 3)}the class is {colour} and the name"
            answers = [{"text": colour, "answer_start": context.index(colour)}]
            if version == "2.0" and number % 2:
                answers = []
            one = {"id": f"{split}{number}", "question": "what class?" if answers else "what loop?"}
            one |= {} if split == "test" else {"answers": answers}
            paragraphs.append({"context": context, "qas": [one]})
        content = {"version": version, "data": [{"title": "t", "paragraphs": paragraphs}]}
        (folder / f"{split}-v{version}.json").write_text(json.dumps(content))


def settings_of(folder, run, task, flags=""):
    write_squad(folder / "data", {"squad1": "1.1", "squad2": "2.0"}[task])
    places = {"data_dir": str(folder / "data"), "output_dir": str(folder / "run"), "init_from": str(run)}
    settings = FinetuningSettings(task=task, **places, config="x" * (not run))
    own = "--learning_rate=3e-3 --train_batch_size=8 --num_train_steps=1 --save_checkpoints_steps=1 --max_seq_length=32"
    return changed(settings, f"{own} {flags}")


@pytest.fixture(scope="module")
def squads(tmp_path_factory, tiny_run):
    """Settings and folders of two models of SQuAD 2.0 that differ in their seed."""
    settings = settings_of(tmp_path_factory.mktemp("squad2"), tiny_run, "squad2", "--seed=0,5")
    folder = finetune(settings)
    return settings, folder / "seed-0", folder / "seed-5"


def test_a_run_leaves_official_files_and_the_threshold(squads):
    _, folder, _ = squads
    task = load_task(folder)
    assert (task["task"], task["kind"], task["inputs"]) == ("squad2", "spans", ["question", "context"])
    for split in ("dev", "test"):
        texts = read_predictions(folder / "predictions" / split / "predictions.json")
        odds = read_null_odds(folder / "predictions" / split / "null_odds.json")
        assert len(texts) == len(odds) == 8
        assert {one: bool(text) for one, text in texts.items()} == {
            one: value <= task["null_threshold"] for one, value in odds.items()
        }
    assert float(history(folder)[-1]["dev_total"]) == 8


@pytest.mark.parametrize("head", ["plain", "joint"])
@pytest.mark.few(1)
def test_version_1_answers_always(tmp_path, tiny_run, head):
    settings = settings_of(tmp_path, tiny_run, "squad1")
    folder = finetune(settings, SquadTask("squad1", settings.data_dir, span_head=head))
    assert load_task(folder)["null_threshold"] is None and load(folder).model.joint == (head == "joint")
    dev = folder / "predictions" / "dev"
    assert sorted(path.name for path in dev.iterdir()) == ["nbest_predictions.json", "predictions.json"]
    assert all(read_predictions(dev / "predictions.json").values())


@pytest.mark.parametrize(
    "task, message",
    [
        ("squad1", "question '7' has no answer; --task=squad2"),
        ("squad2", "holds neither train-v2.0.json nor train-v2.0.json.gz"),
    ],
)
def test_says_what_is_wrong_before_training(tmp_path, task, message):
    asked = '{"context": "c", "qas": [{"id": "7", "question": "?", "answers": []}]}'
    (tmp_path / "train-v1.1.json").write_text(f'{{"data": [{{"paragraphs": [{asked}]}}]}}')
    with refused(message):
        SquadTask(task, str(tmp_path)).read("train")
    assert SquadTask("squad2", str(tmp_path)).read("dev") is None


def test_logits_of_an_ensemble_are_their_mean():
    members = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
    np.testing.assert_allclose(combine([list(member) for member in members]), members.astype("float64").mean(0), 1e-12)
    with pytest.raises(ValueError):
        combine([list(members[0]), list(members[1][:2])])


def test_squad_ensemble(squads, tmp_path):
    settings, first, second = squads
    wanted = EnsembleSettings(
        task="squad2", data_dir=settings.data_dir, models=f"{first},{second}", output_dir=str(tmp_path / "both")
    )
    both = ensemble(wanted)["models"]
    assert {place: one["dev_f1"] for place, one in both.items()} == pytest.approx(
        {str(folder): load_task(folder)["metrics"]["f1"] for folder in (first, second)}
    )
    one, other, mean = (
        read_null_odds(folder / "predictions" / "dev" / "null_odds.json")
        for folder in (first, second, tmp_path / "both")
    )
    assert mean == pytest.approx({name: (one[name] + other[name]) / 2 for name in one}, abs=1e-5)
    # A model beside itself answers as it does alone.
    ensemble(dataclasses.replace(wanted, models=f"{first},{first}", output_dir=str(tmp_path / "same")))
    alone, same = (folder / "predictions" / "test" / "predictions.json" for folder in (first, tmp_path / "same"))
    assert read_predictions(alone) == read_predictions(same)


REFUSED = r"""
--models=, => --models names no folder
--models=TINY => has no task.json
--models=FIRST,TMP/sst2 => was trained for kind classification, --task=squad2 is of spans
--data_dir=TMP/empty => holds no evaluation or test file
--task=squat => --task=squat is unknown
--max_seq_length=5000 => --max_seq_length=5000 is more than the
"""


def test_an_ensemble_says_who_does_not_belong(squads, tmp_path, tiny_run):
    settings, first, _ = squads
    for name in ("empty", "sst2"):
        (tmp_path / name).mkdir()
    for name in ("model.keras", "albert_tokenizer.json", "spiece.model"):
        (tmp_path / "sst2" / name).symlink_to(first / name)
    (tmp_path / "sst2" / "task.json").write_text(json.dumps(load_task(first) | {"kind": "classification"}))
    places = {"TINY": tiny_run, "FIRST": first, "TMP": tmp_path}
    for line in lines(functools.reduce(lambda text, name: text.replace(name, str(places[name])), places, REFUSED)):
        assert_refused(
            line,
            EnsembleSettings(task="squad2", data_dir=settings.data_dir, models=str(first), output_dir=str(tmp_path)),
            ensemble,
        )
