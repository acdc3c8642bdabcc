"""Files of others are data: each hostile one is refused in one line, in bounded memory, and runs and removes nothing.

A file that hangs its reader ends by the suite's time limit.
"""

import io
import json
import os
import pickle
import re
import struct
import sys
import types
import zipfile
from pathlib import Path

import h5py
import keras
import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

import albert_tf
from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.checkpoints.huggingface import load_huggingface, save_huggingface
from albert_tf.checkpoints.tensor_files import read_tensors
from albert_tf.loading.model_files import load_task
from albert_tf.training.loop.run_folder import History
from serving.gateway.keys import Keys
from serving.model_server.configuration import read_text_proto
from serving.model_server.status import StatusError
from serving.score.job import read_records
from tests.albert_tf.tiny import KINDS, small
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.reading.manifest import read_folder
from tfrecords.tokenizers.loading import load_tokenizer

# What reading may add to the memory of the process, in bytes.
MOST_MEMORY = 2**28
HUGE = 2**30
RAN = "RAN"


def refused(read, path, said):
    """Asserts that reading ends in one line that matches `said`, without a peak of memory, and runs nothing."""
    os.environ.pop(RAN, None)
    # Resets the peak of memory.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    with pytest.raises((UserError, StatusError), match=said) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert _peak() - before < MOST_MEMORY
    assert RAN not in os.environ, "the file's code ran"


def _peak():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def ran():
    os.environ[RAN] = "1"


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "model.keras"
    save_keras(KINDS["classifier"](small()), path)
    return path


def named(module, name, **config):
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def with_config(value):
    """Puts a configuration anywhere into that of a model."""

    def change(members):
        config = json.loads(members["config.json"])
        config["config"]["more"] = [value]
        members["config.json"] = json.dumps(config).encode()

    return change


def of_sizes(members):
    members["config.json"] = re.sub(rb'"vocab_size": \d+', b'"vocab_size": 1000000000000', members["config.json"])


def with_hdf5(change):
    def changed(members):
        buffer = io.BytesIO(members["model.weights.h5"])
        with h5py.File(buffer, "r+") as file:
            change(file)
        members["model.weights.h5"] = buffer.getvalue()

    return changed


def external(file):
    file.create_dataset("stored", (8,), "uint8", external=[("/etc/passwd", 0, 8)])


def virtual(file):
    layout = h5py.VirtualLayout((8,), "uint8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (8,))
    file.create_virtual_dataset("virtual", layout)


LAMBDA = {"class_name": "__lambda__", "config": {"value": "4wEAAAA="}}
KERAS = {
    "a lambda": (with_config(LAMBDA), "names None.__lambda__, which is no class"),
    "a Lambda layer": (with_config(named("keras.layers", "Lambda", function=LAMBDA)), "keras.layers.Lambda|__lam"),
    "a program": (with_config(named("os", "system", command="true")), "names os.system, which is no class"),
    "a download": (with_config(named("keras.utils", "get_file", origin="http://x")), "names keras.utils.get_file"),
    "a layer that reads files": (
        with_config(named("keras.layers", "StringLookup", vocabulary="/etc/passwd")),
        "names keras.layers.StringLookup",
    ),
    "a function": (with_config(named("builtins", "function") | {"config": "exec"}), "names builtins.function"),
    "a configuration of a terabyte": (of_sizes, "its configuration asks for 8,000,000,000,912 weights"),
    "a member outside": (lambda members: members.update({"../../evil": b"x"}), r"holds '\.\./\.\./evil'"),
    "a member more": (lambda members: members.update({"assets/x": b"x"}), "holds 'assets/x'"),
    "deep JSON": (lambda members: members.update({"config.json": b"[" * 10**6}), "nested too deeply"),
    "a bomb of zip": (lambda members: members.update({"metadata.json": bytes(2**27)}), "would unpack to"),
    "a bomb of HDF5": (with_hdf5(lambda file: file.create_dataset("bomb", (2**40,), "float32")), "would unpack to"),
    "a link": (with_hdf5(lambda file: file.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/"))), "data elsewhere"),
    "a soft link": (with_hdf5(lambda file: file.__setitem__("x", h5py.SoftLink("/y"))), "refers to data elsewhere"),
    "data in another file": (with_hdf5(external), "refers to data elsewhere by 'stored'"),
    "virtual data": (with_hdf5(virtual), "refers to data elsewhere by 'virtual'"),
}


@pytest.mark.parametrize("name", KERAS)
def test_keras_files(name, model_file, tmp_path):
    change, said = KERAS[name]
    with zipfile.ZipFile(model_file) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    change(members)
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, content in members.items():
            archive.writestr(one, content)
    del members
    refused(load_keras, path, said)


def test_what_the_program_registered_is_its_own(model_file, tmp_path):
    """A loss of the user's program is loaded with the model; a file of the same name from nowhere is not."""

    @keras.saving.register_keras_serializable(package="hostile_test")
    def loss(expected, found):
        return keras.ops.mean(expected - found)

    model = load_keras(model_file)
    model.compile(loss=loss)
    save_keras(model, tmp_path / "model.keras")
    assert load_keras(tmp_path / "model.keras", compile=True).loss is loss
    keras.saving.get_custom_objects().pop("hostile_test>loss")
    refused(lambda path: load_keras(path, compile=True), tmp_path / "model.keras", "which is no class of this library")


@pytest.mark.parametrize(
    "file, content, said",
    [
        ("config.json", json.dumps(named("os", "system", x=1)).encode(), "names os.system"),
        ("task.json", json.dumps(named("keras.layers", "Lambda")).encode(), "names keras.layers.Lambda"),
        (
            "config.json",
            json.dumps(
                {"config": {"vocabulary_size": 10**9, "hidden_dim": 64, "intermediate_dim": 8, "num_layers": 1}}
            ).encode(),
            "its configuration asks for 64,000,004,608 weights and more, its files hold 0",
        ),
        ("model.weights.h5", b"no HDF5", "keras-hub cannot load the preset"),
    ],
)
def test_presets_of_keras_hub(file, content, said, tmp_path):
    (tmp_path / "model.weights.h5").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / file).write_bytes(content)
    refused(albert_tf.load, tmp_path, said)


def safetensors(header, data=b"", size=None):
    header = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(header) if size is None else size) + header + data


def tensor(shape, begin, end):
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "a header of exabytes": safetensors(b"{}", size=2**63),
    "a header beyond the file": safetensors(b"{}", size=2**20),
    "a header of 99 MB": safetensors(b"[" * 99_000_000),
    "data beyond the file": safetensors({"a": tensor([2**38], 0, 2**40)}, bytes(8)),
    "a shape that is not the data's": safetensors({"a": tensor([2**20], 0, 8)}, bytes(8)),
    "a shape beyond 64 bits": safetensors({"a": tensor([2**63, 2**63], 0, 0)}),
    "a negative shape": safetensors({"a": tensor([-1], 0, 4)}, bytes(4)),
    "an end before its begin": safetensors({"a": tensor([2], 8, 0)}, bytes(8)),
    "data used twice": safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 0, 8)}, bytes(8)),
    "a dimension a bit": safetensors({"a": tensor([1] * 1000, 0, 4)}, bytes(4)),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors(name, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(SAFETENSORS[name])
    refused(read_tensors, path, "is not whole, or no safetensors")


def test_a_tensor_of_a_type_that_is_not_read_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": tensor([4], 0, 4) | {"dtype": "F8_E4M3"}}, bytes(4)))
    refused(read_tensors, path, "the tensor a has the type F8_E4M3")


def test_a_configuration_that_asks_for_more_than_its_weights(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(
        safetensors({"albert.embeddings.word_embeddings.weight": tensor([2], 0, 8)}, bytes(8))
    )
    sizes = dict(vocab_size=2**31 - 1, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert", "embedding_size": 64} | sizes))
    refused(load_huggingface, tmp_path, "asks for 137,438,994,496 weights and more, its files hold 2")


OF_CONFIGURATIONS = {
    "max_position_embeddings": (2**31 - 1, "asks for .* weights and more"),
    "inner_group_num": (2**30, "runs 2147483648 blocks; at most 4096"),
    "vocab_size": (10**30, "vocab_size must be a whole number of at least 1, in 32 bits"),
    "architectures": ({"a": 1}, "architectures must be a list of names"),
    "id2label": (7, "id2label must hold names by class number, not 7"),
    "sentence_transformers": ("x", "sentence_transformers must be an object, not 'x'"),
    "sbert_ce_default_activation_function": ([], r"the activation \[\] is not known"),
}


@pytest.mark.parametrize("key", OF_CONFIGURATIONS)
def test_values_of_a_configuration(key, tmp_path):
    value, said = OF_CONFIGURATIONS[key]
    save_huggingface(KINDS["classifier"](small()), tmp_path)
    files.write_json(tmp_path / "config.json", files.read_json(tmp_path / "config.json") | {key: value})
    refused(load_huggingface, tmp_path, said)


OF_TASKS = {
    "labels": ({"a": 1}, 7, ["a", None]),
    "inputs": (True, [1]),
    "max_seq_length": ("x", 1.5),
    "prompts": ([1],),
}


@pytest.mark.parametrize("key", OF_TASKS)
def test_values_of_a_task(key, tmp_path):
    for value in OF_TASKS[key]:
        files.write_json(tmp_path / "task.json", {"name": "a", key: value})
        refused(load_task, tmp_path, f"task.json': {key} .* is not as training writes it")


def test_an_index_of_weights_that_names_itself(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    files.write_json(path, {"weight_map": {"a": path.name}})
    refused(read_tensors, path, "does not say which files hold the weights")


def test_of_a_tensor_in_two_files_the_listed_one_counts(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    for number in (1, 2):
        content = safetensors({"a": tensor([1], 0, 4)}, struct.pack("<f", number))
        (tmp_path / f"{number}.safetensors").write_bytes(content)
    files.write_json(path, {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})
    assert read_tensors(path)["a"] == 1


class Ran:
    def __reduce__(self):
        return ran, ()


def test_a_pickle_is_read_as_weights_alone(tmp_path, monkeypatch):
    """PyTorch, which is optional, is asked for tensors alone; see test_pickles_of_pytorch for its own answer."""
    asked = {}
    torch = types.SimpleNamespace(load=lambda file, **options: asked.update(options) or {}, float32="float32")
    monkeypatch.setitem(sys.modules, "torch", torch)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Ran()))
    assert read_tensors(tmp_path / "pytorch_model.bin") == {}
    assert asked["weights_only"] is True


@pytest.mark.parametrize("kind", ["a program", "a bomb of zip", "a tensor larger than its data"])
def test_pickles_of_pytorch(kind, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "pytorch_model.bin"
    if kind == "a program":
        path.write_bytes(pickle.dumps(Ran()))
        refused(read_tensors, path, "holds more than tensors, which could run any program and is never loaded")
        return
    torch.save({"a": torch.zeros(1).expand(2**30) if "larger" in kind else torch.zeros(2)}, path)
    if kind == "a bomb of zip":
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data/9", bytes(2**28))
    refused(read_tensors, path, "would unpack to" if "zip" in kind else "larger than its own data")


def tokenizer_json(**changes):
    pieces = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": pieces}
    return {"model": model, "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"}} | changes


SLOW_PATTERN = {"Regex": "(a+)+$"}
TOKENIZERS = {
    "an expression in a split": (
        tokenizer_json(pre_tokenizer={"type": "Split", "pattern": SLOW_PATTERN, "behavior": "Isolated"}),
        r"\(a\+\)\+\$|Split",
    ),
    "an expression in a replacement": (
        tokenizer_json(normalizer={"type": "Replace", "pattern": SLOW_PATTERN, "content": ""}),
        r"\(a\+\)\+\$|Replace",
    ),
    "an id of a terabyte": (
        tokenizer_json(model={"type": "WordPiece", "unk_token": "a", "vocab": {"a": 10**12}}),
        "has the id 1,000,000,000,000 but 1 pieces",
    ),
    "no object": ([1], "holds no JSON object"),
    "a type of several lines": (tokenizer_json(model={"type": "a\nb", "vocab": {}}), r"a\\nb"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizers(name, tmp_path):
    values, said = TOKENIZERS[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    refused(load_tokenizer, tmp_path / "tokenizer.json", said)


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(HUGE)


def endless(path):
    path.symlink_to("/dev/zero")


def waiting(path):
    os.mkfifo(path)


def nested(path):
    path.write_text('{"a":' * 100_000)


# The readers of settings and vocabularies, by the name of their file.
READERS = {
    "settings.json": files.read_json,
    "config.json": albert_tf.AlbertConfig.from_json,
    "manifest.json": lambda path: read_folder(path.parent),
    "tokenizer.json": load_tokenizer,
    "vocab.txt": load_tokenizer,
    "spiece.model": load_tokenizer,
    "keys.txt": Keys.read,
    "models.config": lambda path: read_text_proto(path, ModelServerConfig()),
}
HOSTILE = {
    sparse: "has 1,073,741,824 bytes; such a file has at most 67,108,864",
    endless: "is no regular file",
    waiting: "is no regular file",
    nested: "nested too deeply",
}


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", READERS)
def test_settings_and_vocabularies(make, name, tmp_path):
    if make is nested and not name.endswith(".json"):
        pytest.skip("no JSON")
    make(tmp_path / name)
    refused(READERS[name], tmp_path / name, HOSTILE[make])


OUTSIDE_NAMES = ("../secret.txt", "/etc/passwd", "a/../../secret.txt", "..", 7, None, "a\0b", "a\ud800")


@pytest.mark.parametrize("name", OUTSIDE_NAMES, ids=repr)
def test_names_that_leave_their_folder(name, tmp_path):
    (tmp_path / "secret.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsecret\n")
    folder = tmp_path / "model"
    folder.mkdir()
    said = "which is no place in its folder"
    description = {"kind": "wordpiece", "vocabulary": name, "lower_case": True, "sha256": ""}
    (folder / "albert_tokenizer.json").write_text(json.dumps(description))
    refused(load_tokenizer, folder, said)
    (folder / "albert_tokenizer.json").unlink()
    file = {"name": name, "examples": 1, "bytes": 1}
    split = {"documents": 1, "examples": 1, "files": [file]}
    (folder / "manifest.json").write_text(
        json.dumps({"format_version": 3, "masking": "static", "pad_id": 0, "splits": {"train": split, "eval": split}})
    )
    refused(read_folder, folder, said)
    (folder / "manifest.json").write_text(json.dumps({"job": {}, "sample": {}, "tables": {"a.jsonl": name}}))
    refused(read_records, folder, said)
    # A half of a character, which UTF-8 has no bytes for, is an escape.
    (folder / "modules.json").write_text(json.dumps([{"type": "x.Transformer", "path": name}]))
    said = said if isinstance(name, str) else "is no list of sentence-transformers' modules"
    refused(albert_tf.load, folder, said)
    refused(load_tokenizer, folder, said)
    assert (tmp_path / "secret.txt").exists()


def test_a_symbolic_link_to_a_file_is_followed_and_a_loop_is_not(tmp_path):
    """The hub's cache is made of links; that files of a folder may be links is the user's business."""
    (tmp_path / "blob").write_text("{}")
    (tmp_path / "config.json").symlink_to("blob")
    assert files.read_json(tmp_path / "config.json") == {}
    (tmp_path / "loop.json").symlink_to("loop.json")
    refused(files.read_json, tmp_path / "loop.json", "cannot read .*loop.json': Too many levels of symbolic links")


@pytest.mark.parametrize("content", ["step,loss\nx,1\n", "step\n1,2\n", "loss\n1\n", 'step\n"1', "step\n\ud800\n"])
def test_a_damaged_history(content, tmp_path):
    (tmp_path / "history.csv").write_bytes(content.encode("utf-8", "surrogatepass"))
    refused(History, tmp_path, "history.csv' is damaged: .*; remove it")


@pytest.mark.parametrize("content", ["[]", '{"tables": {}}', '{"job": 3, "tables": {}}', '{"job": {}, "tables": [1]}'])
def test_a_damaged_record_of_answers(content, tmp_path):
    (tmp_path / "manifest.json").write_text(content)
    refused(read_records, tmp_path, "manifest.json' is not of this version of serving.score")


def test_a_message_is_one_line_whatever_it_names():
    assert str(UserError("a\n\x1b[2J\ud800\u202e é")) == r"a\n\x1b[2J\ud800\u202e é"
    assert len(str(UserError("x" * 10**6))) < 5000
