"""Models by name: what is downloaded, once and whole, from a server that speaks the hub's routes; and every refusal."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants, utils
from numpy.testing import assert_array_equal
from safetensors.numpy import save_file

from albert_tf.config import read_config
from albert_tf.loading import hub
from albert_tf.loading import load as loading
from albert_tf.loading.hub import check_model, find_model
from albert_tf.loading.load import convert
from tests.albert_tf import hub_server
from tests.albert_tf.hub_server import COMMIT
from tests.albert_tf.test_loading import PIECES, write_modules, written
from tests.albert_tf.test_published_folders import routed
from tests.albert_tf.tiny import table
from tests.refusals import refused
from tfrecords.base import hub as base_hub
from tfrecords.tokenizers.loading import load_tokenizer

VOCABULARY = "\n".join(PIECES)
WEIGHTS = {"weight": np.arange(200_000, dtype="float32")}
NAMES = "me/model"
PUBLISHED = Path("published") / NAMES
forget = base_hub._download.cache_clear


def set_offline(monkeypatch, is_offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", is_offline)
    # Before version 1, a session keeps what it read when it began.
    getattr(utils, "reset_sessions", lambda: None)()


@pytest.fixture
def server(tmp_path, monkeypatch):
    forget()
    monkeypatch.setattr(hub, "_permitted", set())
    monkeypatch.chdir(tmp_path)
    with hub_server.running() as found:
        found.folders[NAMES] = tmp_path / PUBLISHED
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        set_offline(monkeypatch, False)
        yield found
    forget()


def publish(*files, **configuration):
    """Puts a model on the server, whose files have a few bytes, and its weights 0.8 MB."""
    for file in (".gitattributes", "config.json", "vocab.txt", *files):
        path = PUBLISHED / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            save_file(WEIGHTS, path)
        elif file.endswith("index.json"):
            path.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
        else:
            path.write_text(VOCABULARY if file == "vocab.txt" else json.dumps({"model_type": "bert"} | configuration))


def weights_asked(server):
    """The files of weights, which are large, that were asked for."""
    return [line for line in server.requests if re.match(r"GET .*\.(safetensors|bin|h5|keras)$", line)]


def downloaded(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "files, expected",
    [
        ("model.safetensors pytorch_model.bin tf_model.h5 onnx/model.onnx .gitattributes", "model.safetensors"),
        ("model.safetensors.index.json model-1.safetensors model-2.safetensors model-3.safetensors",
         "model-1.safetensors model-2.safetensors model.safetensors.index.json"),
        ("model.keras task.json albert_tokenizer.json", "albert_tokenizer.json model.keras task.json"),
        ("metadata.json model.weights.h5 task.json task.weights.h5 preprocessor.json assets/tokenizer/vocabulary.txt",
         "assets/tokenizer/vocabulary.txt metadata.json model.weights.h5 preprocessor.json task.json task.weights.h5")
    ]
)  # fmt: skip
def test_only_the_files_that_are_read_are_downloaded_and_once(server, files, expected):
    publish(*files.split())
    folder = find_model(NAMES)
    assert downloaded(folder) == sorted([".gitattributes", "config.json", "vocab.txt", *expected.split()])
    assert folder.name == COMMIT and folder.is_relative_to(Path("cache").resolve())
    count = len(server.requests)
    assert find_model(NAMES) == folder and len(server.requests) == count
    forget()
    assert find_model(NAMES) == folder
    # The next process asks which commit it is, and downloads no file.
    assert not [line for line in server.requests[count:] if line.startswith("GET /me")]


@pytest.mark.usefixtures("eagerly")
def test_a_model_by_name_is_the_model_of_the_folder(server):
    """With sentence-transformers' modules, whose transformer lies in a folder of its own."""
    inner = written(PUBLISHED / "0_Transformer", 8, VOCABULARY)
    write_modules(PUBLISHED, "pooling_mode_cls_token", "Normalize", path="0_Transformer")
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    loaded, expected = loading.load(NAMES), loading.load(PUBLISHED)
    assert (loaded.model.pooling, loaded.task) == ("cls", expected.task) and loaded.task["max_seq_length"] == 12
    assert loaded.source == NAMES
    convert(NAMES, "out/model.keras", "keras")
    for one in (loaded, loading.load("out")):
        assert_array_equal(one.encode(["a b", "b"]), expected.encode(["a b", "b"]))


@pytest.mark.usefixtures("eagerly")
def test_a_router_by_name_is_the_model_of_the_folder(server):
    routed(PUBLISHED)
    loaded, expected = loading.load(NAMES), loading.load(PUBLISHED)
    assert_array_equal(loaded.encode_query(["a b a"]), expected.encode_query(["a b a"]))
    assert_array_equal(loaded.encode(["a b a"]), expected.encode(["a b a"]))
    assert load_tokenizer(NAMES).sha256 == expected.tokenizer.sha256


def test_without_network_the_cache_answers_where_it_is_whole(server, monkeypatch, caplog):
    publish("model.safetensors")
    folder = find_model(NAMES)
    set_offline(monkeypatch, True)
    forget()
    assert find_model(NAMES) == folder
    assert f"from the cache, since the hub cannot be asked: commit {COMMIT}" in caplog.text
    assert "may lack" not in caplog.text
    forget()
    assert find_model(f"{NAMES}@{COMMIT}") == folder
    set_offline(monkeypatch, False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    forget()
    assert find_model(NAMES) == folder
    # What another program left may lack the list of modules, of which the cache then knows nothing.
    (folder / ".gitattributes").unlink()
    forget()
    assert find_model(NAMES) == folder and "may lack files that its page has (modules.json)" in caplog.text
    # A part alone is no model.
    (folder / "model.safetensors").unlink()
    forget()
    with refused(r"not in the cache .* and http://127.0.0.1:9 cannot be reached"):
        find_model(NAMES)


def test_a_folder_wins_over_a_name_and_a_revision_names_the_hub(server):
    publish("model.safetensors")
    Path(NAMES).mkdir(parents=True)
    assert find_model(NAMES) == Path(NAMES) and server.requests == []
    assert find_model(f"{NAMES}@v1").name == COMMIT
    assert find_model("me/other@main.index.json") == Path("me/other@main.index.json")


# What is published, its type, the hub's statuses, what is asked for, its revision, and the error.
CASES = table(r"""
    - | bert | {} | a/b | | no folder 'a/b', and http\S+ has no model of this name
    - | bert | {"a/b": 403} | a/b | | 'a/b' is gated: accept its terms
    - | bert | {"a/b": 401} | a/b | | is gated: .* HF_TOKEN
    model.safetensors | bert | {"me/model/": 403} | me/model | | 'me/model' is gated: accept its terms
    - | bert | {"a/b": 500} | a/b | | cannot be reached \(status 500\)
    config.json | bert | {} | me/model | v9 | 'me/model' has no revision 'v9'
    config.json | bert | {} | me/model@v9 | | 'me/model' has no revision 'v9'
    model.safetensors | gpt2 | {} | me/model | | 'me/model': model_type 'gpt2' is not
    pytorch_model.bin | bert | {} | me/model | | has its weights as a pickle alone
    tf_model.h5 | bert | {} | me/model | | has no weights .*that are read here; it has .*tf_model.h5
    adapter_config.json | bert | {} | me/model | | is a PEFT adapter
    model.safetensors.index.json | bert | {} | me/model | | lacks the file 'model-1.safe
    - | bert | {} | runs/sst3 | | no 'sst3' in the folder 'runs'; did you mean 'sst2'
    - | bert | {} | runs | v1 | revision 'v1' is for models of the hub
""")


@pytest.mark.parametrize("file, kind, statuses, name, revision, message", CASES)
def test_what_cannot_be_had_is_said_in_one_line(server, file, kind, statuses, name, revision, message):
    if file != "-":
        publish(file, model_type=kind)
    server.statuses = json.loads(statuses)
    Path("runs/sst2").mkdir(parents=True)
    with refused(message):
        find_model(name, revision)
    assert not weights_asked(server)


def test_a_pickle_comes_when_it_is_asked_for(server):
    publish("pytorch_model.bin")
    with refused("add --allow_pickle"):
        check_model(NAMES)
    check_model(NAMES, allow_pickle=True)
    # What reads the model later in the same process need not be told again.
    assert "pytorch_model.bin" in downloaded(find_model(NAMES))


def test_without_a_name_the_hubs_library_is_not_imported(tmp_path, monkeypatch):
    folder = written(tmp_path / "model", 8, VOCABULARY)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert loading.load(folder).tokenizer is not None


@pytest.mark.parametrize(
    "files",
    [
        ["pytorch_model.bin"],
        ["pytorch_model.bin.index.json", "pytorch_model-1.bin"],
        ["model.safetensors", "modules.json", "1_Dense/pytorch_model.bin"],
    ],
)
def test_a_folders_pickle_is_read_when_it_is_asked_for(tmp_path, files):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text('[{"path": ""}, {"path": "1_Dense"}]' if file == "modules.json" else "{}")
    with refused(r"a pickle alone \('(1_Dense/)?pytorch_model\.bin.*add --allow_pickle"):
        check_model(tmp_path)
    check_model(tmp_path, allow_pickle=True)
    # Who names the file itself asks for it.
    assert find_model(tmp_path / files[0]) == tmp_path / files[0]


@pytest.mark.parametrize("inside", ["", "0_Transformer"])
def test_a_tokenizer_and_a_configuration_come_by_name_without_weights(server, monkeypatch, inside):
    expected = load_tokenizer(written(PUBLISHED / inside, 8, VOCABULARY))
    write_modules(PUBLISHED, "pooling_mode_cls_token", path=inside)
    assert load_tokenizer(NAMES).sha256 == load_tokenizer(PUBLISHED).sha256 == expected.sha256
    assert read_config(NAMES) == read_config(str(PUBLISHED)) == loading.load(PUBLISHED).model.encoder.config
    assert not weights_asked(server)
    forget()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert load_tokenizer(NAMES).sha256 == expected.sha256 and read_config(NAMES).vocab_size == 8
    # A part of a model is none.
    with refused("cannot be reached"):
        find_model(NAMES)
    for content in ('{"a": 1}', '[{"idx": 0}]'):
        (PUBLISHED / "modules.json").write_text(content)
        with refused("is no list of sentence-transformers' modules"):
            load_tokenizer(PUBLISHED)


def test_what_has_no_tokenizer_or_configuration_is_one_line(server):
    publish("model.safetensors")
    (PUBLISHED / "vocab.txt").unlink()
    with refused(r"'me/model' has no tokenizer that is read here; it has config.json"):
        load_tokenizer(NAMES)
    (PUBLISHED / "config.json").unlink()
    with refused(r"'me/model' has no configuration that is read here; it has model.saf"):
        read_config(NAMES)


def test_without_network_or_with_it_forbidden_one_line_says_so(server, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with refused(r"'a/b' is no folder, is not in the cache .* cannot be reached .*refused"):
        find_model("a/b")
    set_offline(monkeypatch, True)
    with refused("cannot be reached .*HF_HUB_OFFLINE"):
        find_model("a/b")
