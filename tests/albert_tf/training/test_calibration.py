"""Probabilities are calibrated on the rows held out, and each road gives the same ones."""

import csv
import dataclasses

import numpy as np
import pytest

import albert_tf
from albert_tf.tasks.metrics import macro_f1
from albert_tf.tasks.tables import held_out
from albert_tf.tasks.task import Answered
from albert_tf.training import finetuning
from albert_tf.training.calibration import by_confidence, calibration_error, fitted, temperature_of, thresholds_of
from albert_tf.training.finetuning import finetune
from serving.export import ExportSettings, export
from serving.lite import LiteModel
from serving.lite.signatures import signatures_of
from tests.albert_tf.training import trainers
from tfrecords.answers.numbers import softmax
from tfrecords.base import files

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
        return 1 / (1 + np.exp(-logits - offset)), (random.random((2000, 3)) < 1 / (1 + np.exp(-logits))).astype(float)

    found = thresholds_of(*rows(np.array([-3, 0, 3])))
    assert found[0] < 0.4 and found[2] > 0.6
    shares, labels = rows(np.array([-3, 0, 3]))
    scores = [np.mean([macro_f1(*one) for one in zip((shares > those).T, labels.T)]) for those in (found, 0.5)]
    assert scores[0] > scores[1] + 0.02
    # The best threshold of the first, third, ... row would lose all labels of the other rows.
    shares, labels = np.tile([[0.9], [0.7], [0.8], [0.2]], (4, 1)), np.tile([[1.0], [1.0], [0.0], [0.0]], (4, 1))
    assert thresholds_of(shares, labels) == 0.5 and thresholds_of(shares[::2], labels[::2]) == [0.85]


@pytest.fixture
def calibrated(trained, run_settings, tmp_path, monkeypatch):
    """calibrated(temperature): a finished run's folder, its logits before, and the folder after such a calibration."""

    def make(temperature):
        trainers.copy(trained("fine-tuning"), tmp_path / "run")
        trainers.copy(trained("fine-tuning"), tmp_path / "before")
        task = files.read_json(tmp_path / "run" / "task.json")
        task.pop("calibration")
        files.write_json(tmp_path / "run" / "task.json", task)
        found = {"temperature": temperature, "ece_before": 0.3, "ece": 0.1}
        monkeypatch.setattr(finetuning, "fitted", lambda answered: found)
        settings = dataclasses.replace(run_settings("fine-tuning"), output_dir=str(tmp_path / "run"))
        finetune(settings)
        return settings, tmp_path / "run", tmp_path / "before"

    return make


def test_every_road_gives_the_calibrated_probabilities(calibrated, tmp_path, capsys):
    settings, run, before = calibrated(3.0)
    printed = capsys.readouterr().out
    assert "calibration error 0.100, before the temperature 0.300" in printed and "confidence 0." in printed
    assert files.read_json(run / "task.json")["calibration"]["temperature"] == 3.0
    with open(run / "held_out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [row["text"] for row in rows]
    raw, loaded = (albert_tf.load(folder) for folder in (before, run))
    expected = loaded.predict(texts)
    for one, other in zip(raw.predict(texts), expected):
        shares = softmax(np.log(list(one["probabilities"].values())) / 3.0)
        np.testing.assert_allclose(list(other["probabilities"].values()), shares, atol=1e-6)
        assert one["label"] == other["label"]
    assert [row["prediction"] for row in rows] == [one["label"] for one in expected]
    largest = [max(one["probabilities"].values()) for one in expected]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], largest, atol=1e-5)
    # Exports of both engines, and the light runtime by calls and by its server's signatures.
    shares = np.array([list(one["probabilities"].values()) for one in expected])
    lite = LiteModel(export(ExportSettings(str(run), str(tmp_path / "lite"), inputs="text", engine="litert")))
    found = [list(one["probabilities"].values()) for one in lite.predict(texts)]
    np.testing.assert_allclose(found, shares, atol=1e-5)
    given = {"text": np.array([text.encode() for text in texts], object)}
    answers = signatures_of(lite)["serving_default"].call(given, lambda: None)
    np.testing.assert_allclose(answers["probabilities"], shares, atol=1e-5)
    # What a client makes of logits is the same.
    np.testing.assert_allclose(softmax(answers["logits"]), shares, atol=1e-5)
    # The same command again changes nothing.
    kept = {path.name: path.read_bytes() for path in (run / "model.keras", run / "held_out.csv", run / "task.json")}
    finetune(settings)
    assert kept == {name: (run / name).read_bytes() for name in kept}


@pytest.mark.slow
def test_a_saved_model_gives_the_calibrated_probabilities(calibrated, tmp_path):
    import tensorflow as tf

    _, run, _ = calibrated(3.0)
    loaded, texts = albert_tf.load(run), ["so good", "bad so"]
    version = export(ExportSettings(str(run), str(tmp_path / "out"), inputs="text", warm_up_lengths=""))
    answers = tf.saved_model.load(str(version)).signatures["serving_default"](text=tf.constant(texts))
    expected = [list(one["probabilities"].values()) for one in loaded.predict(texts)]
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)


def test_nocalibrate_leaves_logits_as_they_were_trained(run_settings, trained, tmp_path):
    trainers.copy(trained("fine-tuning"), tmp_path / "run")
    task = files.read_json(tmp_path / "run" / "task.json")
    assert set(task.pop("calibration")) == {"temperature", "ece_before", "ece"}
    files.write_json(tmp_path / "run" / "task.json", task)
    before = (tmp_path / "run" / "model.keras").read_bytes()
    settings = dataclasses.replace(run_settings("fine-tuning"), output_dir=str(tmp_path / "run"), calibrate=False)
    finetune(settings)
    assert "calibration" not in files.read_json(tmp_path / "run" / "task.json")
    assert (tmp_path / "run" / "model.keras").read_bytes() == before


def test_a_row_with_any_text_is_kept_as_it_is(tmp_path):
    texts = ['a "b"', "two\nlines", "tab\t,;", "\ufeffmark", "emoji 👩‍👩‍👧", "[1, 2]", "'", "=1+1", "carriage\rreturn"]
    rows = [Answered((text, "other"), "no", "yes", np.array([[0.0, 2.0]]), np.array([1])) for text in texts]
    rows += [Answered(("", "dropped"), "no", "yes"), Answered(("a\0b", "dropped"), "no", "yes")]
    path = held_out.write_held_out(tmp_path, rows)
    found = held_out.held_out_rows(path, 500)
    assert found["text"] == texts and set(found["second_text"]) == {"other"}
    assert set(found["probability"]) == {"0.880797"} and set(found["label"]) == {"yes"}
    few = held_out.held_out_rows(path, 3)
    assert few["text"] == [texts[0], texts[4], texts[8]]
    assert held_out.held_out_file(str(tmp_path / "model.keras")) == path and held_out.held_out_file("") is None
