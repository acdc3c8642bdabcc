"""An export is measured on a table, and compared with the model that it was made from."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.run_evaluation import EvaluationSettings
from albert_tf.tasks.tables.held_out import FILE, write_held_out
from albert_tf.tasks.task import Answered
from albert_tf.training.file_evaluation import Measured
from albert_tf.training.preparation import Split
from serving import evaluate, exporting
from serving.export import ExportSettings, export
from serving.litert import agreement
from serving.manifest import MANIFEST
from tests.refusals import refused
from tests.serving.conftest import LABELLED, LABELS, write_export
from tfrecords.base import files
from tfrecords.base.tables import write_table
from tfrecords.reading.framing import Framer, encode

TEXTS = ["the cat sat", "paris", "a dull film", "the river runs in france", "who is fine", "the " * 60]
WANTED = [LABELS[number % 3] for number in range(len(TEXTS))]


@pytest.fixture
def rows(tmp_path):
    return write_table(tmp_path / "rows.csv", ("text", "label"), zip(TEXTS, WANTED))


def evaluated(folder, rows, **settings):
    """Evaluates; returns the report."""
    output_dir = rows.parent / "report"
    evaluate.main(EvaluationSettings(model=str(folder), data_file=str(rows), output_dir=str(output_dir), **settings))
    return files.read_json(output_dir / "evaluation.json")


def assert_measured(version, folder, by_texts, rows, capsys):
    """Asserts that the accuracy of `folder` is that of the answers to texts, compared with those of the model."""
    loaded = albert_tf.load(version.parents[1])
    labels = [by_texts(TEXTS), [one["label"] for one in loaded.predict(TEXTS)]]
    changed = sum(one != other for one, other in zip(*labels))
    own, of_model = (float(np.mean(np.array(of) == WANTED)) for of in labels)
    capsys.readouterr()
    assert evaluated(folder, rows)["metrics"]["accuracy"] == own
    printed = capsys.readouterr().out
    assert f"accuracy {own:.4g} (float32 {of_model:.4g})" in printed and f"{changed} of 6 labels changed" in printed
    return own


@pytest.mark.parametrize("name", ["ids", pytest.param("int8", marks=pytest.mark.slow("litert"))])
def test_a_saved_model_is_measured_by_its_own_answers(exported, rows, tmp_path, name, capsys):
    # The fixture's folder was moved after the export.
    version = shutil.copytree(exported(name).parents[1], tmp_path / "model") / "exported" / "1"
    manifest = files.read_json(version / MANIFEST)
    manifest["export"]["model"] = str(tmp_path / "model")
    files.write_json(version / MANIFEST, manifest)
    signatures = tf.saved_model.load(str(version)).signatures

    def by_texts(texts):
        if name == "int8":
            return [one.decode() for one in signatures["serving_default"](text=tf.constant(texts))["label"].numpy()]
        preprocess = albert_tf.load(version.parents[1]).preprocessor()
        made = [preprocess([text]) for text in texts]
        given = [{"input_ids": tf.constant(one["input_ids"]), "lengths": [one["input_mask"].sum()]} for one in made]
        return [signatures["serving_default"](**one)["label"].numpy()[0].decode() for one in given]

    assert_measured(version, version.parent, by_texts, rows, capsys)


def test_a_litert_version_is_compared_while_its_model_is_there(make_model, tokenizer, rows, tmp_path, capsys):
    model = make_model("classifier", hidden_size=64, intermediate_size=128)
    version = write_export(tmp_path, model, tokenizer, LABELLED, engine="litert", inputs="text", compute="int8")
    lite = evaluate.LiteModel(version)
    own = assert_measured(version, version, lambda texts: [one["label"] for one in lite.predict(texts)], rows, capsys)
    (tmp_path / "model.keras").unlink()
    assert evaluated(version.parent, rows)["metrics"]["accuracy"] == own
    assert "not compared with the model that was exported: " in capsys.readouterr().out


def test_an_embedder_is_compared_by_cosines(both, rows, tmp_path, capsys):
    loaded, lite = both("embedder", compute="int8")
    report = evaluated(lite.folder, rows)
    cosines = (loaded.encode(TEXTS) * lite.encode(TEXTS)).sum(axis=1)
    assert f"cosines {cosines.mean():.4f}, at least {cosines.min():.4f}" in capsys.readouterr().out
    assert report["rows"] == 6 and report["metrics"] == {}
    pairs = write_table(tmp_path / "pairs.csv", ("anchor", "positive"), zip(TEXTS, [*TEXTS[1:], TEXTS[0]]))
    found = evaluated(lite.folder, pairs)["metrics"]
    assert found.keys() == {"mrr", "accuracy"} and 0 < found["mrr"] < 1


def measured(kind, outputs):
    task = SimpleNamespace(
        kind=kind, score=lambda *given: {},
        answered=lambda examples, rows, outputs: [Answered((), one, None) for one in outputs]
    )  # fmt: skip
    return Measured(task, Split("dev", [], None), outputs)


@pytest.mark.parametrize("count, changed, near", [(200, 1, True), (200, 2, False), (199, 1, False), (8, 0, True)])
def test_one_label_in_200_may_change(count, changed, near):
    labels = [measured("classification", ["b"] * some + ["a"] * (count - some)) for some in (changed, 0)]
    assert evaluate.nearness(*labels) == (near, f"{changed} of {count} labels changed")


@pytest.mark.parametrize("angle, near", [(0.1, True), (0.2, False)])
def test_the_least_cosine_is_099(angle, near):
    vectors = [[[[1.0, 0.0]], [[np.cos(one), np.sin(one)]]] for one in (angle, 0.0)]
    found = evaluate.nearness(*(measured("pairs", one) for one in vectors))
    assert found[0] == near and found[1].endswith(f"at least {np.cos(angle):.4f}")


@pytest.fixture
def run(make_model, tokenizer, tmp_path):
    """A model's folder with rows that its run held out."""
    version = write_export(tmp_path, make_model("classifier"), tokenizer, LABELLED, engine="litert", inputs="text")
    shutil.rmtree(version.parent)
    write_held_out(tmp_path, [Answered((text,), label, label) for text, label in zip(TEXTS, WANTED)])
    return tmp_path


def test_a_check_says_what_changes_on_the_rows_held_out(run, capsys):
    export(ExportSettings(str(run), str(run / "out"), inputs="text", engine="litert", check=True))
    said = capsys.readouterr().out
    found = [one["label"] for one in albert_tf.load(run).predict(TEXTS)]
    right = np.mean(np.array(found) == WANTED)
    assert f"check: accuracy {right:.4g} (float32 {right:.4g}), macro_f1 " in said
    assert "0 of 6 labels changed" in said and "differs by at most" not in said


def test_int8_takes_its_ranges_from_the_rows_held_out(run, tokenizer, monkeypatch, capsys):
    class Made(Exception):
        pass

    def make(model, options):
        raise Made(options.calibration)

    monkeypatch.setattr(exporting, "make_exportable", make)
    (run / "lines.txt").write_text("paris\n")
    for given, texts in (({}, TEXTS), ({"calibration_text": str(run / "lines.txt")}, ["paris"])):
        with pytest.raises(Made) as caught:
            export(ExportSettings(str(run), str(run / "out"), inputs="text", compute="int8", **given))
        expected = Framer(tokenizer, 48).single(encode(tokenizer, texts)).padded()
        np.testing.assert_array_equal(caught.value.args[0][0], expected.input_ids)
        assert ("ranges of int8 from rows of" in capsys.readouterr().out) == (not given)
    with pytest.raises(Made) as caught:
        export(ExportSettings(str(run), str(run / "out"), inputs="text"))
    assert caught.value.args[0] is None


def test_a_start_judges_by_the_rows_held_out(run, monkeypatch):
    loaded, asked = albert_tf.load(run), []
    monkeypatch.setattr(agreement, "comparison", lambda *given: asked.append(given) or (False, "9 labels changed"))
    assert agreement.agrees(loaded, run / "1") == (False, "of the rows held out: 9 labels changed")
    assert asked == [(loaded, run / "1", run / FILE)]


def test_what_an_export_cannot_be_asked_is_named(exported, rows, both):
    with refused("--suite is not for a SavedModel"):
        evaluate.main(EvaluationSettings(model=str(exported("ids")), suite="embeddings", data_dir="sets"))
    with refused("--depth=1 is not for an export"):
        evaluate.main(EvaluationSettings(model=str(exported("ids")), data_file=str(rows), depth=1))
    with refused("answers spans, or takes no texts; --data_file is for versions that give"):
        evaluated(both("spans")[1].folder, rows)
