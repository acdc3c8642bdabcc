"""Fine-tuned models measured on a file of labelled rows, and a file fine-tuned on and begun again."""

import csv
import json

import numpy as np
import pytest

from albert_tf import (
    AlbertClassifier,
    AlbertEncoder,
    AlbertRegressor,
    AlbertTokenClassifier,
    load,
    run_evaluation,
    run_finetuning,
)
from albert_tf.tasks.settings import FinetuningSettings
from tests.albert_tf.tiny import graphs
from tests.albert_tf.training.classes import CONFIG_OF_TABLES, write_start
from tests.albert_tf.training.trainers import table
from tests.refusals import assert_refused, changed, lines, refused
from tests.tfrecords.tokenizers.twins import read_rows
from tfrecords.base import files

TEXTS = ["good", "bad", "so so", "good bad", "bad so", "good so good", "so", "bad bad"]
LABELS = {
    "classification": ["no", "yes"] * 4,
    "sst2": ["0", "1"] * 4,
    "multilabel": ['["joy"]', "[]", '["joy", "fear"]', '["fear"]'] * 2,
    "regression": ["1,5", "2", "3", "0,25", "1", "2", "3", "4"],
    "tagging": ["O", "B-X", "O B-X", "O O", "O O", "O B-X O", "O", "B-X O"],
}
NAMES = {"multilabel": ["fear", "joy"], "tagging": ["O", "B-X"], "sst2": ["negative", "positive"]}
MODELS = {
    "multilabel": lambda names: AlbertClassifier(CONFIG_OF_TABLES, 2, labels=names, multi_label=True),
    "regression": lambda names: AlbertRegressor(CONFIG_OF_TABLES),
    "tagging": lambda names: AlbertTokenClassifier(CONFIG_OF_TABLES, 2, labels=names),
}

pytestmark = pytest.mark.usefixtures("eagerly")


def made(folder, task):
    """Writes a model that learned nothing, as run_finetuning writes models, and a file of eight rows."""
    names = [] if task == "regression" else NAMES.get(task, ["no", "yes"])
    model = MODELS.get(task, lambda names: AlbertClassifier(CONFIG_OF_TABLES, 2, labels=names))(names)
    (folder / "run").mkdir()
    model.save(folder / "run" / "model.keras")
    write_start(folder / "run")
    kind = "classification" if task == "sst2" else task
    said = {"task": task, "kind": kind, "labels": names or None, "inputs": ["Satz"], "max_seq_length": 16}
    (folder / "run" / "task.json").write_text(json.dumps(said))
    (folder / "run" / "run.json").write_text('{"label_column": "Note"}')
    with open(folder / "neu.csv", "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([("Note", "Satz", "label"), *zip(LABELS[task], TEXTS, "abcdefgh")])
    return run_evaluation.EvaluationSettings(model=str(folder / "run"), data_file=str(folder / "neu.csv"))


@pytest.mark.parametrize("task", LABELS)
def test_a_file_is_answered_as_predict_does_and_measured_written_and_drawn(tmp_path, task, capsys):
    settings, folder, tagged = made(tmp_path, task), tmp_path / "run" / "evaluation" / "neu", task == "tagging"
    run_evaluation.main(settings)
    found = json.loads((folder / "evaluation.json").read_text())
    figures, baseline = found["metrics"], found["baseline"]["metrics"]
    assert found["rows"] == 8 and figures.keys() == baseline.keys()
    rows = read_rows(folder / "predictions.jsonl") if tagged else table(folder / "predictions.tsv", "\t")
    assert tagged or [row["line"] for row in rows] == [str(number) for number in range(2, 10)]
    parse = {"multilabel": json.loads, "regression": float}.get(task, lambda cell: cell)
    predictions, labels = ([parse(row[name]) for row in rows] for name in ("prediction", "label"))
    answers = [OF_ANSWERS.get(task, lambda one: one["label"])(one) for one in load(settings.model).predict(TEXTS)]
    assert predictions == (pytest.approx(answers, rel=1e-5) if task == "regression" else answers)
    if task == "regression":
        numbers = [float(label.replace(",", ".")) for label in LABELS[task]]
        assert labels == numbers
        error = np.mean(np.subtract(answers, numbers) ** 2)
        assert figures["mean_squared_error"] == pytest.approx(error, rel=1e-4)
        assert baseline["mean_squared_error"] == pytest.approx(np.var(numbers), rel=1e-4)
    elif task != "multilabel":
        right = np.hstack(predictions) == np.hstack(labels)
        assert figures["accuracy"] == pytest.approx(right.mean()) and np.trace(found["confusion"]) == right.sum()
        assert np.sum(found["confusion"]) == len(right)
    if task in ("classification", "sst2"):
        assert labels == NAMES.get(task, ["no", "yes"]) * 4 and baseline["accuracy"] == 0.5
    printed = capsys.readouterr().out
    assert "baseline" in printed and "truncated: neu.csv" in printed
    pictures = list(folder.glob("*.png"))
    assert len(pictures) == (task not in ("multilabel", "regression"))
    for picture in pictures:
        assert picture.read_bytes()[:4] == b"\x89PNG" and f"wrote {picture}" in printed


# What `predict` gives for a text, as a file says it.
OF_ANSWERS = {
    "multilabel": lambda one: one["labels"],
    "regression": lambda one: one,
    "tagging": lambda one: [tag for _, tag in one],
}
REFUSED = """
--label_column=label => line 2: label 'a' is none of those trained on: no, yes
--text_column=Text => line 1: no column 'Text'; it has 'Note', 'Satz', 'label'
--second_text_column=label => =label: the model was trained on single texts; leave it out
--data_file=nowhere.csv => nowhere.csv does not exist
--encoding=cp37x => --encoding=cp37x is unknown
--output=x.json => --output=x.json is for --eval_data; give both, or leave it out
--data_file= --train_data=x --eval_data=x => matches no record file
--model=hf://a/b => 'hf://a/b' lies in a cache of downloads, .* give --output_dir=FOLDER
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_a_model_does_not_answer_is_named_with_its_line(tmp_path, line):
    assert_refused(line, made(tmp_path, "classification"), run_evaluation.main)
    assert not (tmp_path / "run" / "evaluation").exists()


def test_a_model_without_classes_is_refused_and_a_published_one_needs_no_task_file(tmp_path):
    settings = made(tmp_path, "classification")
    (tmp_path / "run" / "task.json").unlink()
    run_evaluation.main(changed(settings, f"--output_dir={tmp_path}/out --text_column=Satz"))
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["labels"] == ["no", "yes"]
    AlbertEncoder(CONFIG_OF_TABLES).save(tmp_path / "run" / "model.keras")
    with refused("holds an AlbertEncoder; --data_file is for models that give texts classes"):
        run_evaluation.main(changed(settings, "--text_column=Satz"))


@pytest.fixture(scope="module")
def from_file(tmp_path_factory, eagerly):
    """The settings of a run that learned to tell two words apart from one file."""
    folder = tmp_path_factory.mktemp("file")
    rows = [f"so {'good' if number % 2 else 'bad'} {'so ' * (number // 2)};{'ny'[number % 2]}" for number in range(40)]
    (folder / "data.csv").write_text("\n".join(["Satz;Stimmung", *rows]))
    settings = FinetuningSettings(
        data_file=str(folder / "data.csv"), dev_fraction=0.2, output_dir=str(folder / "run"), text_column="Satz",
        learning_rate=1e-2, train_batch_size=16, num_train_steps=30, save_checkpoints_steps=15,
        classifier_dropout=0.0, **write_start(folder)
    )  # fmt: skip
    with graphs():
        run_finetuning.main(settings)
    return settings


def test_a_run_on_one_file_ends_with_metric_and_baseline_and_again_with_the_same(from_file, capsys):
    run_finetuning.main(from_file)  # It is done.
    printed = capsys.readouterr().out
    assert "2 classes (n 20, y 20); 32 rows to train on, 8 held out to measure" in printed
    assert "truncated: train " in printed and "wrote " in printed
    assert "baseline: accuracy 0.5, macro_f1 0.3333 (always 'n')" in printed
    task, run = (files.read_json(f"{from_file.output_dir}/{name}.json") for name in ("task", "run"))
    assert task["task"] == "classification" and task["metrics"]["accuracy"] == 1.0
    assert run["label_column"] == "Stimmung"


def test_without_rows_held_out_it_is_said_that_nothing_was_measured(from_file, tmp_path, capsys):
    run_finetuning.main(changed(from_file, f"--dev_fraction=0 --num_train_steps=1 --output_dir={tmp_path}/run"))
    printed = capsys.readouterr().out
    assert "40 rows to train on, none held out to measure" in printed and "baseline" not in printed
    assert "nothing was measured, as --dev_fraction=0 holds no row out; python -m albert_tf.run_evaluation" in printed
    with refused(r"--early_stopping needs a dev file to score; give --dev_fraction=0\.1 or"):
        run_finetuning.main(changed(from_file, f"--dev_fraction=0 --early_stopping=1 --output_dir={tmp_path}/other"))


def test_results_of_files_of_one_name_are_all_kept(tmp_path):
    found = []
    for name in ("held.2023.csv", "held.2024.csv", "x/held.2023.csv", "held.2023.csv"):
        place = run_evaluation.results_folder(tmp_path, name)
        place.mkdir(exist_ok=True)
        (place / "evaluation.json").write_text(json.dumps({"data_file": name}))
        found.append(place.name)
    assert found == ["held.2023", "held.2024", "held.2023-2", "held.2023"]
