"""One object: what `albert_tf.load` gives encodes, compares, saves and exports; and 60 wrong inputs, a line each."""

import json
import os

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertPretrainer, AlbertSentenceEmbedder
from albert_tf.checkpoints import save_huggingface
from albert_tf.loaded import Loaded
from albert_tf.loading import load as loading
from tests.albert_tf.test_loading import VOCABULARY, encoder
from tests.albert_tf.tiny import small, table
from tests.column import Column
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
TEXTS = ["a b", "b", ""]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders: a classifier of ours, an encoder of transformers' form, and some without a model."""
    folder = tmp_path_factory.mktemp("door")
    for name in ("classifier", "hf", "empty", "notes", "others"):
        (folder / name).mkdir()
        (folder / name / {"notes": "README.md", "others": "a.txt"}.get(name, "vocab.txt")).write_text(VOCABULARY)
    (folder / "empty" / "vocab.txt").unlink()
    config = small(vocab_size=8, num_hidden_layers=1)
    AlbertClassifier(config, 2, labels=["x", "y"]).save(folder / "classifier" / "model.keras")
    save_huggingface(encoder(), folder / "hf")
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
        Column(TEXTS),
    ],
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
        broken.setattr("albert_tf.loading.saving.os.replace", fail)
        with refused(r"cannot write the folder '.*saved': Device or resource busy; choose"):
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
    with refused(r"this process works in the folder '\.'"):
        loaded.save(".")


def test_a_model_in_memory_is_loaded_with_a_depth_and_a_tokenizer(place):
    model = AlbertClassifier(small(vocab_size=8), 2)
    assert loading.load(model, depth=3).model.encoder.config.num_hidden_layers == 3
    assert loading.load(model, depth=2).model is model
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


# A method of a loaded model, its arguments, those by name, and the error.
METHODS = table(r"""
    predict      | [null]                | {}                      | texts is a NoneType
    predict      | [3]                   | {}                      | texts is a int, 3; give a list
    predict      | [[null]]              | {}                      | texts\[0\] is None, a NoneType; give strings
    predict      | [["a", NaN]]          | {}                      | texts\[1\] is nan, a float; give strings
    predict      | [[["a"]]]             | {}                      | texts\[0\] is \['a'\], a list
    predict      | [{"text": "a"}]       | {}                      | texts is a dict
    predict      | ["a", ["b"]]          | {}                      | one is a string and the other is not
    predict      | [["a"], "b"]          | {}                      | one is a string and the other is not
    predict      | [["a"], ["b", "a"]]   | {}                      | 1 texts but 2 second ones; give each a partner
    predict      | [["a"]]               | {"batch_size": 0}       | batch_size=0 must be a whole number
    predict      | [["a"]]               | {"batch_size": "8"}     | batch_size='8' must be
    encode       | ["a"]                 | {}                      | an AlbertClassifier makes no vectors; call predict
    similarity   | ["a", "b"]            | {}                      | makes no vectors
    preprocessor | [9999]                | {}                      | more than the model's 32 positions
    preprocessor | [1]                   | {}                      | leaves no room for text
    preprocessor | ["12"]                | {}                      | max_seq_length='12' must be a whole number
    preprocessor | [-1]                  | {}                      | max_seq_length=-1 must be
    preprocessor | []                    | {"features": ["ids"]}   | features=\['ids'\] must be a list of some of
    preprocessor | []                    | {"features": "ids"}     | features='ids' must be a list
    preprocessor | []                    | {"features": []}        | features=\[\] must be a list
    export       | ["x"]                 | {"comput": "int8"}      | no option 'comput'; did you mean 'compute'
    export       | ["x"]                 | {"depth": 2}            | 'depth' is of albert_tf.load
    export       | ["x"]                 | {"compute": "float16"}  | float16 is unknown; choose one of float32
    export       | ["x"]                 | {"version": "one"}      | version='one' must be of type int
    export       | ["x"]                 | {"warm_up_lengths": "a"} | not a comma-separated list
    export       | [""]                  | {}                      | '' is no path; name a folder
    export       | [null]                | {}                      | None is no path; name a folder
    save         | [""]                  | {}                      | '' is no path; name a folder
    save         | [null]                | {}                      | None is no path; name a folder
    save         | ["hf"]                | {"overwrite": "no"}     | overwrite='no' must be
    save         | ["hf"]                | {}                      | is not empty; choose another
    save         | ["others"]            | {"overwrite": true}     | which save did not write
    save         | ["notes"]             | {"overwrite": true}     | README.md
    save         | ["hf/vocab.txt"]      | {}                      | is a file; name a folder
    save         | ["hf/vocab.txt/x"]    | {}                      | cannot write to
""")
# A folder of a module's fixture, options of loading, and the error.
FOLDERS = table(r"""
    nowhere        | {}                         | no model at 'nowhere': there is no such file or folder
    nowhere/x.keras | {}                        | nowhere/x\.keras
                   | {}                         | path='' is empty; give a folder, a file or a name
    albert_base_v2 | {}                         | no model at 'albert_base_v2': there
    empty          | {}                         | no model at
    hf             | {"lower_case": "no"}       | lower_case='no' must be True or False
    hf             | {"depth": true}            | depth=True must be a whole number
    hf             | {"depth": "3"}             | depth='3' must be a whole number
    a/b            | {"revision": 3}            | revision=3 must be a branch, tag or
    hf             | {"revision": "v1"}         | revision 'v1' is for models of the hub
    hf://a/b       | {"revision": "v1"}         | is for models of the hub by name; leave it out
    a/b@v1         | {"revision": "v2"}         | names a revision, and revision='v2' another
    classifier     | {"labels": ["a", "a"]}     | give each class a name of its own
    classifier     | {"labels": ["a"]}          | 1 labels for 2 classes
    classifier     | {"labels": "ab"}           | labels='ab' is a str; give a list
    classifier     | {"labels": [null, "x"]}    | give each class a name of its own
    classifier     | {"labels": 3}              | labels=3 is a int; give
    hf             | {"labels": ["a"]}          | labels name classes, and the
    hf             | {"allow_pickle": "no"}     | allow_pickle='no' must be True or
    hf             | {"other_tokenizer": "no"}  | 'no' must be True or False
    hf             | {"tokenizer": 3}           | tokenizer=3 must be a path, a name of
""")
# Of what JSON has no form for: called with a loaded classifier and an encoder.
OTHERS = {
    "texts is a set; give a list of strings": lambda c, e: c.predict({"a"}),
    "a table; give one of its columns": lambda c, e: c.predict(pyarrow.table({"t": ["a"]})),
    r"texts\[1\] is None": lambda c, e: c.predict(pyarrow.array(["a", None])),
    r"texts\[0\] is no UTF-8": lambda c, e: c.predict([b"\xff"]),
    r"give a list of strings: \['good'\]": lambda c, e: c.preprocessor()("good"),
    "of pairs segment_ids": lambda c, e: c.preprocessor(features=["input_ids"])(["a"], ["b"]),
    "num_classes=0 must be a whole number of 1 or": lambda c, e: AlbertClassifier(e.model, 0),
    "load takes a path, a name, or a model": lambda c, e: loading.load(3),
    "cannot look for 'a*': File name too long": lambda c, e: loading.load("a" * 5000),
    "of the hub by name; leave it out": lambda c, e: loading.load(e.model, revision="v1"),
    "is a set; give a list of names": lambda c, e: loading.load("classifier", labels={"a", "b"}),
    "tokenizer is one loaded already": lambda c, e: loading.load("hf", c.tokenizer, lower_case=True),
    "'q' is no prompt of the model": lambda c, e: e.encode("a", prompt_name="q"),
    "normalize='no' must be True": lambda c, e: e.encode("a", normalize="no"),
    "cannot be c": lambda c, e: e.similarity("a", np.ones((2, 3), "f")),
}


@pytest.fixture
def unchanged(place, monkeypatch):
    """Works in the folder of models, in which nothing may be written."""
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    yield
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("method, arguments, options, message", METHODS)
def test_what_a_loaded_model_cannot_do_is_one_line(classifier, unchanged, method, arguments, options, message):
    with refused(message):
        getattr(classifier, method)(*json.loads(arguments), **json.loads(options))


@pytest.mark.parametrize("folder, options, message", FOLDERS)
def test_what_cannot_be_loaded_is_one_line(unchanged, folder, options, message):
    with refused(message):
        loading.load(folder, **json.loads(options))


@pytest.mark.parametrize("message", OTHERS)
def test_other_wrong_arguments_are_one_line(classifier, place, unchanged, message):
    with refused(message):
        OTHERS[message](classifier, loading.load("hf"))
