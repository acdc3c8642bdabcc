"""One object: what `albert_tf.load` gives encodes, compares, saves and exports; and 60 wrong inputs, a line each."""

import json
import logging
import os

import keras
import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertPretrainer, AlbertSentenceEmbedder, loading
from albert_tf.base.precision import warn_of_bfloat16
from albert_tf.checkpoints import save_huggingface
from albert_tf.loaded import Loaded
from tests.albert_tf.test_loading import VOCABULARY, encoder
from tests.albert_tf.tiny import small
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
IDS = np.array([[2, 5, 3, 0], [2, 6, 3, 0]])
TEXTS = ["a b", "b", ""]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders: a classifier of ours, the same truncated, an encoder of transformers' form, and one without files."""
    folder = tmp_path_factory.mktemp("door")
    (folder / "notes").mkdir()
    (folder / "notes" / "README.md").write_text("# Mine")
    for name in ("classifier", "short", "hf", "hf_short", "empty"):
        (folder / name).mkdir()
        (folder / name / "vocab.txt").write_text(VOCABULARY)
    (folder / "empty" / "vocab.txt").unlink()
    config = small(vocab_size=8, num_hidden_layers=1)
    AlbertClassifier(config, 2, labels=["x", "y"]).save(folder / "classifier" / "model.keras")
    save_huggingface(encoder(), folder / "hf")
    (folder / "hf_short" / "config.json").write_bytes((folder / "hf" / "config.json").read_bytes())
    for source, target, name in (("classifier", "short", "model.keras"), ("hf", "hf_short", "model.safetensors")):
        content = (folder / source / name).read_bytes()
        (folder / target / name).write_bytes(content[: len(content) * 9 // 10])
    return folder


@pytest.fixture(scope="module")
def classifier(place):
    return loading.load(place / "classifier")


@pytest.fixture
def embedder(place):
    return Loaded(AlbertSentenceEmbedder(encoder(), normalize=False), loading.load(place / "hf").tokenizer, {}, "me")


def test_one_string_is_a_list_of_one(classifier, embedder):
    assert classifier.predict("a b") == classifier.predict(["a b"])[0]
    assert_array_equal(embedder.encode("a b"), embedder.encode(["a b"])[0])


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array(TEXTS),
        pyarrow.chunked_array([TEXTS[:1], TEXTS[1:]]),
        np.array(TEXTS, object),
        tf.constant(TEXTS),
        tuple(TEXTS),
        iter(TEXTS),
    ],
    ids=lambda column: type(column).__name__,
)
def test_a_column_is_a_list(embedder, column):
    assert_array_equal(embedder.encode(column), embedder.encode(TEXTS))


def test_vectors_are_the_models_own_or_of_length_one(embedder):
    rows = embedder.preprocessor()(TEXTS)
    own = np.asarray(embedder.model(rows))
    assert_allclose(embedder.encode(TEXTS, normalize=False), own, atol=1e-6)
    unit = embedder.encode(TEXTS, batch_size=1)
    assert_allclose(unit, own / np.linalg.norm(own, axis=1, keepdims=True), atol=1e-6)
    assert embedder.encode([]).shape == (0, 16)


def test_an_encoder_and_a_pretrainer_give_the_mean_of_their_tokens(embedder):
    core = embedder.model.encoder
    for model in (core, AlbertPretrainer(core)):
        loaded = Loaded(model, embedder.tokenizer, {})
        assert_allclose(loaded.encode(TEXTS), embedder.encode(TEXTS), atol=1e-6)


def test_a_prompt_goes_before_each_text(embedder):
    task = {"prompts": {"query": "b ", "passage": "a "}, "default_prompt_name": "passage"}
    asked = Loaded(embedder.model, embedder.tokenizer, task)
    assert_array_equal(asked.encode(["a"], prompt_name="query"), embedder.encode(["b a"]))
    assert_array_equal(asked.encode(["a"]), embedder.encode(["a a"]))


def test_similarity_is_of_texts_or_vectors_and_as_the_folder_says(embedder):
    vectors = embedder.encode(TEXTS)
    expected = vectors @ vectors[:2].T
    assert_allclose(embedder.similarity(TEXTS, vectors[:2]), expected, atol=1e-6)
    assert embedder.similarity("a b", "b") == pytest.approx(float(expected[0, 1]), abs=1e-6)
    raw = embedder.encode(TEXTS, normalize=False)
    sides = raw[:, None] - raw[None]
    for name, scores in {
        "dot": raw @ raw.T,
        "euclidean": -np.sqrt((sides**2).sum(-1)),
        "manhattan": -np.abs(sides).sum(-1),
    }.items():
        other = Loaded(embedder.model, embedder.tokenizer, {"similarity_fn_name": name})
        assert_allclose(other.similarity(TEXTS, TEXTS), scores, atol=1e-5)


def test_show_progress_counts_on_stderr(embedder, capfd):
    embedder.encode(TEXTS, batch_size=2)
    assert capfd.readouterr().err == ""
    embedder.encode(TEXTS, batch_size=2, show_progress=True)
    assert "2/2" in capfd.readouterr().err


def test_a_saved_folder_loads_to_the_bit_with_its_labels_and_card(place, tmp_path):
    loaded = loading.load(place / "classifier", labels=["dull", "fine"])
    loaded.task.update(metrics={"accuracy": 0.5}, max_seq_length=16)
    again = loading.load(loaded.save(tmp_path / "saved"))
    assert again.predict(TEXTS) == loaded.predict(TEXTS)
    assert again.task == {"labels": ["dull", "fine"], "metrics": {"accuracy": 0.5}, "max_seq_length": 16}
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "| labels | dull, fine |" in card and "| metrics | accuracy 0.5 |" in card and str(tmp_path) not in card
    # What training has changed was not measured.
    again.model.compile()
    again.model.fit(again.preprocessor()(TEXTS), np.array([0, 1, 1]), verbose=0)
    again.save(tmp_path / "saved", overwrite=True)
    trained = loading.load(tmp_path / "saved")
    assert "metrics" not in trained.task and trained.predict(TEXTS) == again.predict(TEXTS)
    assert list(tmp_path.iterdir()) == [tmp_path / "saved"]
    # A fitted model is saved without the optimizer.
    loading.load(place / "classifier").save(tmp_path / "never_trained")
    sizes = [(tmp_path / name / "model.keras").stat().st_size for name in ("saved", "never_trained")]
    assert abs(sizes[0] - sizes[1]) < 2000


def test_other_names_of_classes_in_another_models_task_file_are_told(place, tmp_path, caplog):
    loading.load(place / "classifier").save(tmp_path / "saved")
    loading.load(tmp_path / "saved")
    assert not [record for record in caplog.records if "calls the classes" in record.getMessage()]
    (tmp_path / "saved" / "task.json").write_text('{"labels": ["y", "x"]}')
    assert loading.load(tmp_path / "saved").task["labels"] == ["y", "x"]
    assert "calls the classes y, x, the model's own file x, y; the former are taken" in caplog.text


def test_a_model_that_cannot_be_put_in_place_leaves_the_one_before(place, tmp_path, monkeypatch):
    loaded = loading.load(place / "classifier")
    loaded.save(tmp_path / "saved")
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "saved").iterdir())
    replace = os.replace

    def fail(source, target):
        if str(source).endswith(".partial"):
            raise OSError(16, "Device or resource busy")
        replace(source, target)

    with monkeypatch.context() as broken:
        broken.setattr("albert_tf.saving.os.replace", fail)
        with pytest.raises(UserError, match=r"cannot write the folder '.*saved': Device or resource busy; choose"):
            loaded.save(tmp_path / "saved", overwrite=True)
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "saved").iterdir()) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "saved"]


def test_a_link_stays_and_the_own_folder_is_refused(place, tmp_path, monkeypatch):
    loaded = loading.load(place / "classifier")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    for _ in range(2):
        loaded.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "model.keras").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match=r"this process works in the folder '\.'"):
        loaded.save(".")


def test_a_model_in_memory_runs_at_the_depth_that_is_asked_for():
    model = AlbertClassifier(small(vocab_size=8, num_hidden_layers=2), 2)
    assert loading.load(model, depth=3).model.encoder.config.num_hidden_layers == 3
    assert loading.load(model, depth=2).model is model


def test_a_model_in_memory_is_loaded_with_a_tokenizer(place):
    model = AlbertClassifier(small(vocab_size=8), 2)
    loaded = loading.load(model, tokenizer=str(place / "hf"), labels=["x", "y"])
    assert loaded.model is model and loaded.predict("a b")["label"] in ("x", "y")
    assert loading.load(model, tokenizer=loaded.tokenizer).tokenizer.sha256 == loaded.tokenizer.sha256


def test_export_is_one_call_and_equal_to_the_command(place, classifier, tmp_path):
    version = classifier.export(tmp_path / "served", warm_up_lengths="", version=3)
    assert version == tmp_path / "served" / "3"
    served = tf.saved_model.load(str(version)).signatures["serving_default"](text=tf.constant(TEXTS))
    expected = [list(answer["probabilities"].values()) for answer in classifier.predict(TEXTS)]
    assert_allclose(served["probabilities"], expected, atol=1e-5)
    manifest = json.loads((version / "assets.extra" / "manifest.json").read_text())
    assert manifest["inputs"] == "text" and manifest["export"]["model"] == str(place / "classifier")


def test_the_text_of_a_loaded_model_says_what_it_is(classifier):
    lines = repr(classifier).splitlines()
    assert lines[0].startswith("Loaded '") and lines[0].endswith("classifier'")
    assert [line.split()[0] for line in lines[1:]] == ["model", "labels", "tokenizer", "rows"]
    assert "AlbertClassifier, 1 layers of 16" in lines[1] and lines[2].split()[1:] == ["x,", "y"]


def test_a_head_gets_the_features_that_it_takes(classifier, recwarn):
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("input_ids", "input_mask")}
    head = keras.Model(inputs, keras.layers.Dense(2)(classifier.model.encoder(inputs)["pooled_output"]))
    features = classifier.preprocessor(features=list(inputs))(TEXTS)
    assert list(features) == list(inputs) and head.predict(features, verbose=0).shape == (3, 2)
    assert not [warning for warning in recwarn if "structure of `inputs`" in str(warning.message)]


def test_bfloat16_on_a_cpu_without_it_is_said_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("albert_tf.base.precision._has_accelerator", lambda: False)
    for flags, count in (("avx512_bf16 avx2", 0), ("avx2", 1), ("avx2", 1)):
        path = tmp_path / flags.split()[0]
        path.write_text(f"flags\t\t: {flags}\n")
        warn_of_bfloat16(path)
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == count
    warn_of_bfloat16.cache_clear()


def dataset(ids, labels=None):
    given = {"input_ids": ids} if labels is None else ({"input_ids": ids}, np.array(labels))
    return tf.data.Dataset.from_tensor_slices(given).batch(2)


LOADED = {
    "predict None": (lambda c: c.predict(None), "texts is a NoneType"),
    "predict a number": (lambda c: c.predict(3), "texts is a int, 3; give a list"),
    "predict [None]": (lambda c: c.predict([None]), r"texts\[0\] is None, a NoneType; give strings"),
    "a None among texts": (lambda c: c.predict(["a", None]), r"texts\[1\] is None"),
    "a NaN among texts": (lambda c: c.predict(["a", float("nan")]), r"texts\[1\] is nan, a float"),
    "a list among texts": (lambda c: c.predict([["a"]]), r"texts\[0\] is \['a'\], a list"),
    "a dict": (lambda c: c.predict({"text": "a"}), "texts is a dict"),
    "a set": (lambda c: c.predict({"a"}), "texts is a set"),
    "a table": (lambda c: c.predict(pyarrow.table({"t": ["a"]})), "a table; give one of its columns"),
    "a null in a column": (lambda c: c.predict(pyarrow.array(["a", None])), r"texts\[1\] is None"),
    "bytes of no text": (lambda c: c.predict([b"\xff"]), r"texts\[0\] is no UTF-8"),
    "one and a list": (lambda c: c.predict("a", ["b"]), "one is a string and the other is not"),
    "a list and one": (lambda c: c.predict(["a"], "b"), "one is a string and the other is not"),
    "unequal pairs": (lambda c: c.predict(["a"], ["b", "a"]), "1 texts but 2 second ones"),
    "batch_size 0": (lambda c: c.predict(["a"], batch_size=0), "batch_size=0 must be a whole number"),
    "batch_size -1": (lambda c: c.predict(["a"], batch_size=-1), "batch_size=-1 must be"),
    "batch_size as text": (lambda c: c.predict(["a"], batch_size="8"), "batch_size='8' must be"),
    "vectors of a classifier": (lambda c: c.encode("a"), "an AlbertClassifier makes no vectors; call predict"),
    "similarity of a classifier": (lambda c: c.similarity("a", "b"), "makes no vectors"),
    "rows too long": (lambda c: c.preprocessor(9999), "more than the model's 32 positions"),
    "rows too short": (lambda c: c.preprocessor(1), "leaves no room for text"),
    "length as text": (lambda c: c.preprocessor("12"), "max_seq_length='12' must be a whole number"),
    "length below 0": (lambda c: c.preprocessor(-1), "max_seq_length=-1 must be"),
    "unknown feature": (lambda c: c.preprocessor(features=["ids"]), r"features=\['ids'\] must be a list of some of"),
    "features as text": (lambda c: c.preprocessor(features="input_ids"), "features='input_ids' must be a list"),
    "no features": (lambda c: c.preprocessor(features=[]), r"features=\[\] must be a list"),
    "pairs without segments": (lambda c: c.preprocessor(features=["input_ids"])(["a"], ["b"]), "of pairs segment_ids"),
    "unknown option": (lambda c: c.export("x", comput="int8"), "no option 'comput'; did you mean 'compute'"),
    "option of loading": (lambda c: c.export("x", depth=2), "'depth' is of albert_tf.load"),
    "unknown value": (lambda c: c.export("x", compute="float16"), "float16 is unknown; choose one of float32"),
    "value of another type": (lambda c: c.export("x", version="one"), "version='one' must be of type int"),
    "exported nowhere": (lambda c: c.export(""), "'' is no path; name a folder"),
    "exported to None": (lambda c: c.export(None), "None is no path; name a folder"),
    "saved nowhere": (lambda c: c.save(""), "'' is no path; name a folder"),
    "saved to None": (lambda c: c.save(None), "None is no path; name a folder"),
    "no classes": (lambda c: AlbertClassifier(c.model.encoder, 0), "num_classes=0 must be a whole number of 1 or"),
    "classes as text": (lambda c: AlbertClassifier(c.model.encoder, "2"), "num_classes='2' must be a whole number"),
    "lengths that are none": (lambda c: c.export("x", warm_up_lengths="a"), "not a comma-separated list"),
}
MODELS = {
    "text to predict": (lambda m: m.predict(["text"]), r"call loaded\.predict\(texts\)"),
    "one text to predict": (lambda m: m.predict("text"), r"call loaded\.predict\(texts\)"),
    "an array of texts": (lambda m: m.predict(np.array(["text"])), r"call loaded\.predict\(texts\)"),
    "texts to a call": (lambda m: m(["text"]), r"call loaded\.predict\(texts\)"),
    "texts to fit": (lambda m: m.fit(["text"], [0]), r"call loaded\.predict\(texts\)"),
    "id to a call": (lambda m: m({"input_ids": IDS + 90}), "input_ids: 92 at .* is not from 0 to 7"),
    "id below 0": (lambda m: m({"input_ids": IDS - 9}), "input_ids: -7 at .* is not from 0 to 7"),
    "segment to a call": (lambda m: m({"input_ids": IDS, "segment_ids": IDS}), "segment_ids: 2 at .* from 0 to 1"),
    "id to predict": (lambda m: m.predict({"input_ids": IDS + 90}, verbose=0), "input_ids: 92 at"),
    "id to fit": (lambda m: m.fit({"input_ids": IDS + 90}, np.array([0, 1]), verbose=0), "input_ids: 92 at"),
    "label to fit": (
        lambda m: m.fit({"input_ids": IDS}, np.array([0, 2]), verbose=0),
        r"labels: 2 at \[1\] is not from",
    ),
    "label between": (lambda m: m.fit({"input_ids": IDS}, np.array([0, 0.5]), verbose=0), "labels: 0.5 is no class"),
    "label below 0": (lambda m: m.fit({"input_ids": IDS}, np.array([0, -1]), verbose=0), "labels: -1 at"),
    "id in a dataset": (lambda m: m.fit(dataset(IDS + 90, [0, 1]), verbose=0), "92 .*is not from 0 to 7"),
    "id in a dataset to predict": (lambda m: m.predict(dataset(IDS + 90), verbose=0), "92 .*is not from 0 to 7"),
    "label in a dataset": (lambda m: m.fit(dataset(IDS, [0, 2]), verbose=0), "labels: 2 in a batch .* from 0 to 1"),
}
PLACES = {
    "nothing": (lambda p: loading.load(None), "load takes a path, a name, or a model"),
    "a number": (lambda p: loading.load(3), "load takes a path, a name, or a model"),
    "no name": (lambda p: loading.load(""), "path='' is empty; give a folder, a file or a name"),
    "lower_case as text": (lambda p: loading.load(p / "hf", lower_case="no"), "lower_case='no' must be True, False or"),
    "depth as a truth": (lambda p: loading.load(p / "hf", depth=True), "depth=True must be a whole number of layers"),
    "depth as text": (lambda p: loading.load(p / "hf", depth="3"), "depth='3' must be a whole number of layers"),
    "a revision as a number": (lambda p: loading.load("a/b", revision=3), "revision=3 must be a branch, tag or"),
    "no folder": (lambda p: loading.load("nowhere"), "no model at 'nowhere': there is no such file or folder"),
    "a configuration's name": (lambda p: loading.load("albert_base_v2"), "no model at 'albert_base_v2': there"),
    "a name of 5,000 letters": (lambda p: loading.load("a" * 5000), "cannot look for 'a*': File name too long"),
    "no file": (lambda p: loading.load("nowhere/x.keras"), r"nowhere/x\.keras"),
    "an empty folder": (lambda p: loading.load(p / "empty"), "no model at"),
    "truncated .keras": (lambda p: loading.load(p / "short"), "model.keras' is not whole: .* bytes"),
    "truncated safetensors": (lambda p: loading.load(p / "hf_short"), "model.safetensors' is not whole"),
    "revision of a folder": (lambda p: loading.load(p / "hf", revision="v1"), "revision 'v1' is for models of the hub"),
    "revision in memory": (lambda p: loading.load(encoder(), revision="v1"), "the model is in memory; leave it out"),
    "revision of a preset": (lambda p: loading.load("hf://a/b", revision="v1"), "'hf://a/b' is a preset; leave it out"),
    "two revisions": (lambda p: loading.load("a/b@v1", revision="v2"), "names a revision, and revision='v2' another"),
    "a label twice": (lambda p: loading.load(p / "classifier", labels=["a", "a"]), "labels name a class twice: a, a"),
    "too few labels": (lambda p: loading.load(p / "classifier", labels=["a"]), "1 labels for 2 classes"),
    "labels as text": (lambda p: loading.load(p / "classifier", labels="ab"), "labels='ab' is a str; give a list"),
    "labels as a set": (lambda p: loading.load(p / "classifier", labels={"a", "b"}), "is a set; give a list of names"),
    "no label": (lambda p: loading.load(p / "classifier", labels=(None, "x")), "has one without a name; give"),
    "allow_pickle as text": (lambda p: loading.load(p / "hf", allow_pickle="no"), "allow_pickle='no' must be True or"),
    "other_tokenizer as text": (lambda p: loading.load(p / "hf", other_tokenizer="no"), "'no' must be True or False"),
    "labels as a number": (lambda p: loading.load(p / "classifier", labels=3), "labels=3 is a int; give"),
    "a tokenizer as a number": (lambda p: loading.load(p / "hf", tokenizer=3), "tokenizer=3 must be a path, a name of"),
    "rules of a tokenizer in memory": (
        lambda p: loading.load(p / "hf", loading.load(p / "hf").tokenizer, lower_case=True),
        "tokenizer is one loaded already",
    ),
    "saved over a user's README": (lambda p: loading.load(p / "hf").save(p / "notes", overwrite=True), "README.md"),
    "labels of an encoder": (lambda p: loading.load(p / "hf", labels=["a"]), "labels name classes, and the"),
    "no such prompt": (lambda p: loading.load(p / "hf").encode("a", prompt_name="q"), "'q' is no prompt of the model"),
    "vectors of two lengths": (lambda p: loading.load(p / "hf").similarity("a", np.ones((2, 3), "f")), "cannot be c"),
    "normalize as text": (lambda p: loading.load(p / "hf").encode("a", normalize="no"), "normalize='no' must be True"),
    "overwrite as text": (lambda p: loading.load(p / "hf").save(p / "hf", overwrite="no"), "overwrite='no' must be"),
    "saved over a model": (lambda p: loading.load(p / "hf").save(p / "hf"), "is not empty; choose another"),
    "saved over other files": (lambda p: loading.load(p / "hf").save(p, overwrite=True), "which save did not write"),
    "saved as a file": (lambda p: loading.load(p / "hf").save(p / "hf" / "vocab.txt"), "is a file; name a folder"),
    "saved below a file": (lambda p: loading.load(p / "hf").save(p / "hf" / "vocab.txt" / "x"), "cannot write to"),
    "no tokenizer": (lambda p: Loaded(encoder(), None, {}).predict("a"), "there is no tokenizer next to the model"),
}  # fmt: skip


def refused(call, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("case", LOADED)
def test_what_a_loaded_model_cannot_do_is_one_line(classifier, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = LOADED[case]
    refused(lambda: call(classifier), message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", MODELS)
def test_what_a_model_cannot_read_is_one_line(case):
    model = AlbertClassifier(small(vocab_size=8, num_hidden_layers=1), 2)
    model.compile()
    call, message = MODELS[case]
    refused(lambda: call(model), message)


@pytest.mark.parametrize("case", PLACES)
def test_what_cannot_be_loaded_or_saved_is_one_line(place, case):
    before = sorted(place.rglob("*"))
    call, message = PLACES[case]
    refused(lambda: call(place), message)
    assert sorted(place.rglob("*")) == before
