"""SQuAD through run_finetuning's loop, and ensembles of what it leaves behind."""

import csv
import dataclasses
import json

import numpy as np
import pytest

from albert_tf.loading import load
from albert_tf.model_files import load_task
from albert_tf.tasks.ensemble import combine
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.squad.data import read_null_odds, read_predictions
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.training import preparation
from albert_tf.training.ensemble import EnsembleSettings, ensemble
from albert_tf.training.finetuning import finetune
from tfrecords.base.errors import UserError

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


def settings_of(folder, run, task, **changes):
    write_squad(folder / "data", {"squad1": "1.1", "squad2": "2.0"}[task])
    values = {"init_from": str(run), "learning_rate": 3e-3, "train_batch_size": 8, "num_train_steps": 2}
    values |= {"save_checkpoints_steps": 2, "output_dir": str(folder / "run"), "max_seq_length": 32}
    return FinetuningSettings(task=task, data_dir=str(folder / "data"), **(values | changes))


@pytest.fixture(scope="module")
def squads(tmp_path_factory, tiny_run):
    """Settings and folders of two models of SQuAD 2.0 that differ in their seed."""
    folder = tmp_path_factory.mktemp("squad2")
    settings = settings_of(folder, tiny_run, "squad2")
    other = dataclasses.replace(settings, output_dir=str(folder / "other"), seed=5)
    return settings, finetune(settings), finetune(other)


def test_answers_that_no_token_holds_are_told_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(preparation, "CHUNK_EXAMPLES", 3)
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the class is and name object a value what ? red blue green white"
    (tmp_path / "vocab.txt").write_text(words.replace(" ", "\n"))
    settings = settings_of(
        tmp_path, "", "squad1", config="albert_tiny", tokenizer=str(tmp_path / "vocab.txt"), max_unknown_share=1.0
    )
    preparation.prepare(settings)
    assert "nothing that the tokenizer keeps" not in caplog.text
    path = tmp_path / "data" / "train-v1.1.json"
    # Of each "red" the label is a control character before it.
    lost = path.read_text().replace("is red and", "is \\u0001 red and").replace('"text": "red"', '"text": "\\u0001"')
    path.write_text(lost)
    preparation.prepare(settings)
    assert caplog.text.count("2 answers of the training file are nothing that the tokenizer keeps") == 1


@pytest.mark.slow
def test_learns_to_answer_and_not_to(in_graphs, tmp_path, tiny_run):
    """From the loss to the figures: what the model was shown it must answer."""
    settings = settings_of(tmp_path, tiny_run, "squad2", num_train_steps=150, save_checkpoints_steps=150)
    metrics = load_task(finetune(settings))["metrics"]
    assert metrics["HasAns_exact"] > 90 and metrics["NoAns_exact"] > 90


def test_a_run_leaves_official_files_and_the_threshold(squads):
    _, folder, _ = squads
    task = load_task(folder)
    assert (task["task"], task["kind"], task["inputs"]) == ("squad2", "spans", ["question", "context"])
    for split in ("dev", "test"):
        texts = read_predictions(folder / "predictions" / split / "predictions.json")
        odds = read_null_odds(folder / "predictions" / split / "null_odds.json")
        assert len(texts) == len(odds) == 8
        assert all(not texts[one] for one in texts if odds[one] > task["null_threshold"])
        assert all(texts[one] for one in texts if odds[one] <= task["null_threshold"])
    with open(folder / "history.csv") as file:
        assert float(list(csv.DictReader(file))[-1]["dev_total"]) == 8


@pytest.mark.parametrize("head", ["plain", "joint"])
@pytest.mark.few(1)
def test_version_1_answers_always(tmp_path, tiny_run, head):
    ids = tmp_path / "ids.json"
    ids.write_text('["train0", "train1"]')
    settings = settings_of(tmp_path, tiny_run, "squad1", span_head=head, exclude_ids=str(ids), num_train_steps=2)
    folder = finetune(settings)
    assert load_task(folder)["null_threshold"] is None and load(folder).model.joint == (head == "joint")
    assert sorted(path.name for path in (folder / "predictions" / "dev").iterdir()) == [
        "nbest_predictions.json",
        "predictions.json",
    ]
    assert all(read_predictions(folder / "predictions" / "dev" / "predictions.json").values())
    assert len(SquadTask("squad1", settings.data_dir, exclude_ids=str(ids)).read("train")) == 6
    assert len(SquadTask("squad1", settings.data_dir, exclude_ids=str(ids)).read("dev")) == 8


def test_says_what_is_wrong_before_training(tmp_path):
    write_squad(tmp_path, "1.1")
    (tmp_path / "train-v1.1.json").write_text(
        json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "7", "question": "?", "answers": []}]}]}]})
    )
    with pytest.raises(UserError, match="question '7' has no answer; --task=squad2"):
        SquadTask("squad1", str(tmp_path)).read("train")
    with pytest.raises(UserError, match="--span_head=both is unknown"):
        SquadTask("squad1", str(tmp_path), "both")
    with pytest.raises(UserError, match=r"holds neither train-v2.0.json nor train-v2.0.json.gz"):
        SquadTask("squad2", str(tmp_path)).read("train")
    assert SquadTask("squad2", str(tmp_path)).read("dev") is None


def test_logits_of_an_ensemble_are_their_mean():
    random = np.random.default_rng(0)
    members = random.normal(size=(3, 5, 4)).astype("float32")
    combined = combine([list(member) for member in members])
    for row in range(5):
        for column in range(4):
            mean = sum(float(members[model, row, column]) for model in range(3)) / 3
            assert combined[row][column] == pytest.approx(mean, rel=1e-12)
    with pytest.raises(ValueError):
        combine([list(members[0]), list(members[1][:2])])


def test_squad_ensemble(squads, tmp_path):
    settings, first, second = squads
    wanted = EnsembleSettings("squad2", settings.data_dir, f"{first},{second}", str(tmp_path / "both"))
    both = ensemble(wanted)
    assert both["models"].keys() == {str(first), str(second)}
    for folder in (first, second):
        assert both["models"][str(folder)]["dev_f1"] == pytest.approx(load_task(folder)["metrics"]["f1"])
    odds = [
        read_null_odds(folder / "predictions" / "dev" / "null_odds.json")
        for folder in (first, second, tmp_path / "both")
    ]
    for one in odds[2]:
        assert odds[2][one] == pytest.approx((odds[0][one] + odds[1][one]) / 2, abs=1e-5)
    # A model beside itself answers as it does alone.
    ensemble(dataclasses.replace(wanted, models=f"{first},{first}", output_dir=str(tmp_path / "same")))
    files = [folder / "predictions" / "test" / "predictions.json" for folder in (first, tmp_path / "same")]
    assert read_predictions(files[0]) == read_predictions(files[1])


@pytest.mark.slow
def test_classes_ensemble(tmp_path, tiny_run):
    lines = [f"a {word} value\t{word}" for word in ("good", "bad") * 2]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    common = {"task": "classification", "data_dir": str(tmp_path)}
    base = FinetuningSettings(
        init_from=str(tiny_run), output_dir=str(tmp_path / "a"), num_train_steps=1, train_batch_size=4, **common
    )
    folders = [finetune(base), finetune(dataclasses.replace(base, seed=1, output_dir=str(tmp_path / "b")))]
    (tmp_path / "train.tsv").unlink()  # The models know their classes.
    models = ",".join(map(str, folders))
    ensemble(EnsembleSettings(models=models, output_dir=str(tmp_path / "both"), **common))

    def logits(folder):
        rows = csv.DictReader((folder / "predictions" / "dev.tsv").read_text().splitlines(), delimiter="\t")
        return np.array([[float(row["logit:bad"]), float(row["logit:good"])] for row in rows])

    np.testing.assert_allclose(
        logits(tmp_path / "both"), (logits(folders[0]) + logits(folders[1])) / 2, rtol=1e-5, atol=1e-6
    )


def test_an_ensemble_says_who_does_not_belong(squads, tmp_path, tiny_run):
    settings, first, _ = squads
    good = EnsembleSettings("squad2", settings.data_dir, str(first), str(tmp_path))
    (tmp_path / "empty").mkdir()
    sst2 = tmp_path / "sst2"
    sst2.mkdir()
    for name in ("model.keras", "albert_tokenizer.json", "spiece.model"):
        (sst2 / name).symlink_to(first / name)
    (sst2 / "task.json").write_text(json.dumps(load_task(first) | {"kind": "classification"}))
    for changes, message in (
        ({"models": ","}, "--models names no folder"),
        ({"models": str(tiny_run)}, "has no task.json"),
        ({"models": f"{first},{sst2}"}, "was trained for kind classification, --task=squad2 is of spans"),
        ({"data_dir": str(tmp_path / "empty")}, "holds no evaluation or test file"),
        ({"task": "squat"}, "--task=squat is unknown"),
        ({"max_seq_length": 5000}, "--max_seq_length=5000 is more than the"),
    ):
        with pytest.raises(UserError, match=message):
            ensemble(dataclasses.replace(good, **changes))
