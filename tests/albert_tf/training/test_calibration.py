"""Probabilities are calibrated on the rows held out, and each road gives the same ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, logit

import albert_tf
from albert_tf import run_evaluation
from albert_tf.tasks.metrics import macro_f1
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables import held_out
from albert_tf.tasks.task import Answered
from albert_tf.training import finetuning
from albert_tf.training.calibration import by_confidence, calibration_error, fitted, temperature_of, thresholds_of
from albert_tf.training.finetuning import finetune
from serving.export import ExportSettings, export
from serving.exportable import ExportOptions, make_exportable
from serving.lite import LiteModel
from serving.lite.signatures import signatures_of
from tests.albert_tf.training.classes import write_start
from tests.albert_tf.training.trainers import table
from tfrecords.answers.numbers import softmax
from tfrecords.base import files
from tfrecords.base.tables import write_table

pytestmark = pytest.mark.usefixtures("eagerly")


def drawn(count, temperature, classes=3, seed=0):
    """Logits that are `temperature` times too large for the classes that were drawn by them, and these."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, (count, classes))
    right = np.array([random.choice(classes, p=shares) for shares in softmax(logits)])
    return temperature * logits, right


def answered(logits, right):
    return [Answered((), "", "", logits[n : n + 1], right[n : n + 1]) for n in range(len(right))]


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_the_temperature_that_logits_were_multiplied_by_is_found(temperature):
    logits, right = drawn(4000, temperature)
    assert temperature_of(logits, right) == pytest.approx(temperature, rel=0.08)
    found = fitted(answered(logits, right))
    others = drawn(4000, temperature, seed=1)
    errors = [calibration_error(by_confidence(others[0] / one, others[1])) for one in (1.0, found["temperature"])]
    if temperature == 1.0:
        assert abs(errors[1] - errors[0]) < 0.02
    else:
        # On other rows, too.
        assert errors[1] < errors[0] / 3 and found["ece"] < found["ece_before"] / 3
        assert found["ece_before"] == pytest.approx(errors[0], abs=0.02)


def test_a_few_right_answers_make_none_certain():
    logits = np.tile([[3.0, 0.0]], (16, 1))
    share = softmax(logits / temperature_of(logits, np.zeros(16, int)))[0, 0]
    assert share == pytest.approx(17 / 18, abs=0.01)


def test_a_temperature_that_does_not_help_the_other_half_is_not_taken():
    logits, right = drawn(4000, 1.0)
    # Where one half is too sure and the other not sure enough, each half's temperature harms the other.
    logits[::2] *= 3
    logits[1::2] /= 3
    found = fitted(answered(logits, right))
    assert found["temperature"] == 1.0 and found["ece"] == found["ece_before"]


def test_accuracy_is_counted_by_confidence():
    logits = np.log([[0.95, 0.05], [0.92, 0.08], [0.4, 0.6], [0.35, 0.65]])
    table = by_confidence(logits, np.array([0, 1, 1, 1]))
    assert [one["count"] for one in table] == [2, 2] and [one["accuracy"] for one in table] == [1.0, 0.5]
    assert calibration_error(table) == pytest.approx((2 * (1 - 0.625) + 2 * (0.935 - 0.5)) / 4)


def test_thresholds_raise_f1_on_other_rows_or_stay_at_a_half():
    random = np.random.default_rng(0)

    def rows(offset):
        logits = random.normal(0, 2, (2000, 3))
        return expit(logits + offset), (random.random((2000, 3)) < expit(logits)).astype(float)

    found = thresholds_of(*rows(np.array([-3, 0, 3])))
    assert found[0] < 0.4 and found[2] > 0.6
    shares, labels = rows(np.array([-3, 0, 3]))
    scores = [np.mean([macro_f1(*one) for one in zip((shares > those).T, labels.T)]) for those in (found, 0.5)]
    assert scores[0] > scores[1] + 0.02
    # The best threshold of the first, third, ... row would lose all labels of the other rows.
    shares, labels = np.tile([[0.9], [0.7], [0.8], [0.2]], (4, 1)), np.tile([[1.0], [1.0], [0.0], [0.0]], (4, 1))
    assert thresholds_of(shares, labels) == 0.5
    assert thresholds_of(*(np.repeat(one[::2], 2, axis=0) for one in (shares, labels))) == [0.8]


KINDS = {
    "classification": ["n", "y"] * 10,
    "multilabel": ['["n"]', '["n", "y"]', '["y"]', "[]"] * 5,
    "tagging": ["O B O"] * 20,
}


@pytest.fixture
def finetuned(tmp_path, monkeypatch):
    """finetuned(name, kind, **settings): the folder of a run of two steps, and what it printed."""

    def make(name, kind="classification", **settings):
        rows = [f"so {'good' if n % 2 else 'bad'} so{' so' * (n // 2 if kind != 'tagging' else 0)}" for n in range(20)]
        write_table(tmp_path / f"{kind}.csv", ("Satz", "Klasse"), zip(rows, KINDS[kind]))
        given = FinetuningSettings(
            data_file=str(tmp_path / f"{kind}.csv"), dev_fraction=0.4, output_dir=str(tmp_path / name), task=kind,
            learning_rate=0.05, train_batch_size=6, num_train_steps=2, text_column="Satz", label_column="Klasse",
            **write_start(tmp_path), **settings
        )  # fmt: skip
        return finetune(given)

    return make


def shares_of(answers):
    return np.array([list(one["probabilities"].values()) for one in answers])


def test_every_road_gives_the_calibrated_probabilities(finetuned, tmp_path, monkeypatch, capsys):
    raw = albert_tf.load(finetuned("raw", calibrate=False))
    assert "calibration" not in raw.task and "before the temperature" not in capsys.readouterr().out
    monkeypatch.setattr(finetuning, "fitted", lambda answered: {"temperature": 3.0, "ece_before": 0.3, "ece": 0.1})
    run = finetuned("run")
    printed = capsys.readouterr().out
    assert "calibration error 0.100, before the temperature 0.300" in printed and "confidence 0." in printed
    assert "best of 1 evaluations, step 2" in printed and "95 % interval" in printed
    rows = table(run / "held_out.csv")
    loaded, texts = albert_tf.load(run), [row["text"] for row in rows]
    assert loaded.task["calibration"]["temperature"] == 3.0 and len(rows) == 8
    answers, shares = loaded.predict(texts), shares_of(loaded.predict(texts))
    assert_allclose(shares, softmax(np.log(shares_of(raw.predict(texts))) / 3.0), atol=1e-6)
    assert [one["label"] for one in answers] == [row["prediction"] for row in rows]
    assert [one["label"] for one in answers] == [one["label"] for one in raw.predict(texts)]
    assert_allclose([float(row["probability"]) for row in rows], shares.max(axis=1), atol=1e-5)
    # A LiteRT version: the light runtime by calls, and its server's signatures.
    lite = LiteModel(export(ExportSettings(str(run), str(tmp_path / "lite"), inputs="text", engine="litert")))
    assert_allclose(shares_of(lite.predict(texts)), shares, atol=1e-5)
    given = {"text": np.array([text.encode() for text in texts], object)}
    served = signatures_of(lite)["serving_default"].call(given, lambda: None)
    assert_allclose(served["probabilities"], shares, atol=1e-5)
    # What a client makes of logits is the same.
    assert_allclose(softmax(served["logits"]), shares, atol=1e-5)
    # The same command again changes nothing.
    kept = {name: (run / name).read_bytes() for name in ("model.keras", "held_out.csv", "task.json")}
    finetuned("run")
    assert kept == {name: (run / name).read_bytes() for name in kept}


def test_a_model_of_several_labels_has_a_threshold_for_each_on_every_road(finetuned, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning, "thresholds_of", lambda shares, labels: [0.01, 0.99])
    run = finetuned("run", "multilabel")
    loaded = albert_tf.load(run)
    assert loaded.task["threshold"] == [0.01, 0.99]
    assert [one["labels"] for one in loaded.predict(["so good", "bad"])] == [["n"]] * 2
    rows = table(run / "held_out.csv")
    assert {row["prediction"] for row in rows} == {'["n"]'}
    logits = [[float(row[f"logit:{name}"]) for name in "ny"] for row in table(run / "predictions" / "dev.tsv", "\t")]
    assert_allclose(shares_of(loaded.predict([row["text"] for row in rows])), expit(logits), atol=1e-5)
    run_evaluation.main(
        run_evaluation.EvaluationSettings(model=str(run), data_file=str(run / "held_out.csv"), output_dir=f"{run}/out")
    )
    assert files.read_json(run / "out" / "evaluation.json")["metrics"] == pytest.approx(loaded.task["metrics"])
    lite = LiteModel(export(ExportSettings(str(run), str(tmp_path / "lite"), inputs="text", engine="litert")))
    assert [one["labels"] for one in lite.predict(["so good", "bad"])] == [["n"]] * 2
    given = {"text": np.array([b"so good"], object)}
    assert signatures_of(lite)["serving_default"].call(given, lambda: None)["labels"].tolist() == [[b"n", b""]]
    # A SavedModel's; without a task, even odds decide.
    for task, labels in ((loaded.task, [b"n", b""]), ({}, [b"", b"y"])):
        exportable = make_exportable(loaded.model, ExportOptions(16, task=task))
        exported = exportable.outputs(logit([[0.4, 0.75]]).astype("float32"), None)
        assert_allclose(exported["probabilities"], [[0.4, 0.75]], rtol=1e-6)
        assert exported["labels"].numpy().tolist() == [labels] and exported["label"].numpy() == [b"y"]


def test_words_are_calibrated_and_kept_with_their_tags(finetuned):
    run = finetuned("run", "tagging")
    assert "calibration" in files.read_json(run / "task.json")
    rows = table(run / "held_out.csv")
    assert {(row["text"], row["label"]) for row in rows} <= {("so good so", "O B O"), ("so bad so", "O B O")}
    assert all(len(row["prediction"].split()) == 3 and 0 < float(row["probability"]) <= 1 for row in rows)


def test_a_row_with_any_text_is_kept_as_it_is(tmp_path):
    texts = ['a "b"', "two\nlines", "tab\t,;", "\ufeffmark", "emoji 👩‍👩‍👧", "[1, 2]", "'", "=1+1", "a\r\nb"]
    rows = [Answered((text, "other"), "no", "yes", np.array([[0.0, 2.0]]), np.array([1])) for text in texts]
    rows += [Answered(("", "dropped"), "no", "yes"), Answered(("a\0b", "dropped"), "no", "yes")]
    rows += [Answered(("a\rb", "dropped"), "no", "yes")]
    path = held_out.write_held_out(tmp_path, rows)
    found = held_out.held_out_rows(path, 500)
    assert found["text"] == texts and set(found["second_text"]) == {"other"}
    assert set(found["probability"]) == {"0.880797"} and set(found["label"]) == {"yes"}
    few = held_out.held_out_rows(path, 3)
    assert few["text"] == [texts[0], texts[4], texts[8]]
    assert held_out.of_run(str(tmp_path / "model.keras")) == path and held_out.of_run("") is None
