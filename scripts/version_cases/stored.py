"""Names on disk, and files that one version writes and the other reads."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from . import models
from .configurations import CONFIGURATIONS, encoder_of
from .encoders import inputs_of, make
from .filled import datasets, fill, numbers, prefixed, short, weights_of
from .groups import Case, Folders
from .places import take
from .texts import wordpiece

# Of a model's configuration within a .keras file: when and by which Keras it was written.
_UNSTEADY = ("date_saved", "keras_version")
# The number of the file's format: every reader takes a file without it, as older versions wrote them.
_ADDED = ("shared_object_id", "format_version")


def cases(folders: Folders) -> Iterator[Case]:
    """Returns the cases of files."""
    for name in CONFIGURATIONS:
        yield f".keras of an encoder, {name}", encoder_file, name, folders
    for head in models.heads():
        yield f".keras of a model, {head}", model_file, head, folders
    for optimizer in ("lamb", "adamw", "muon"):
        yield f".keras of a model in training, {optimizer}", trained_file, optimizer, folders
    yield "weights alone", weights_file, folders
    for form in ("official", "huggingface"):
        for name in ("albert", "bert", "roberta", "mpnet", "xlnet published"):
            yield f"{form}, {name}", other_format, form, name, folders
    yield "a folder and its texts", folder_of_texts, folders


def layout(path: Path) -> dict[str, Any]:
    """What a .keras file holds but for the numbers: names, shapes and types of its arrays, and its configuration."""
    with zipfile.ZipFile(path) as archive:
        names = "\n".join(sorted(archive.namelist()))
        metadata = json.loads(archive.read("metadata.json"))
        config = json.loads(archive.read("config.json"))
        with archive.open("model.weights.h5") as file, h5py.File(file) as weights:
            arrays = "\n".join(f"{key} {value.shape} {value.dtype}" for key, value in datasets(weights).items())
    metadata = {key: value for key, value in metadata.items() if key not in _UNSTEADY}
    return {"names": names, "arrays": arrays, "configuration": json.dumps(_steady(config), indent=1, sort_keys=True),
            "metadata": json.dumps(metadata)}  # fmt: skip


def _steady(config: Any) -> Any:
    """A configuration without modules, _ADDED, and the numbers that Keras gives to names of layers."""
    if isinstance(config, dict):
        config = {key: value for key, value in config.items() if key != "module"}
        if isinstance(config.get("name"), str):
            config["name"] = config["name"].rstrip("0123456789").rstrip("_")
        return {key: _steady(value) for key, value in config.items() if key not in _ADDED}
    return [_steady(value) for value in config] if isinstance(config, list) else config


def names_of(model: Any) -> dict[str, str]:
    """The paths of a model's variables, in their order, and which are trained."""
    lines = [f"{short(v.path)} {tuple(v.shape)} {v.dtype} {v.trainable}" for v in model.variables]
    return {"variables": "\n".join(lines)}


def encoder_file(name: str, folders: Folders) -> dict[str, Any]:
    """The file of an encoder, and how the one of before answers."""
    import keras

    path = folders.write / f"encoder_{name}.keras"
    encoder = make(name)
    encoder.save(path)
    found = layout(path) | names_of(encoder)
    read = keras.saving.load_model(folders.read / path.name)
    batches = inputs_of(name, read.config)
    found |= numbers(read(batches.get("two streams", batches["padded"])), "read")
    return found | prefixed("read", weights_of(read) | names_of(read))


def model_file(head: str, folders: Folders) -> dict[str, Any]:
    """The file of a model, and how the one of before answers."""
    import keras

    path = folders.write / f"model_{head}.keras"
    model = models.make(head)
    model.save(path)
    found = layout(path) | names_of(model)
    read = keras.saving.load_model(folders.read / path.name)
    return found | numbers(read(models.heads()[head][1]), "read") | prefixed("read", names_of(read))


def trained_file(optimizer: str, folders: Folders) -> dict[str, Any]:
    """The file of a compiled model after two steps, and two steps more of the one of before."""
    import keras

    path = folders.write / f"trained_{optimizer}.keras"
    batch = models.heads()["pretrainer"][1]
    model = models.make("pretrainer", optimizer=optimizer)
    for _ in range(2):
        model.train_on_batch(batch)
    model.save(path)
    straight = [model.train_on_batch(batch, return_dict=True) for _ in range(2)]
    read = keras.saving.load_model(folders.read / path.name)
    read.run_eagerly = True
    resumed = [read.train_on_batch(batch, return_dict=True) for _ in range(2)]
    found = layout(path) | numbers(straight, "straight") | numbers(resumed, "resumed")
    same = all(np.array_equal(a, b) for a, b in zip(model.get_weights(), read.get_weights(), strict=True))
    return found | models.state_of(read) | {"resumed as straight": np.array(same)}


def weights_file(folders: Folders) -> dict[str, Any]:
    """A weights file of before, read into a new model."""
    path = folders.write / "model.weights.h5"
    models.make("joint spans").save_weights(path)
    with h5py.File(path) as file:
        found = {"arrays": "\n".join(f"{key} {value.shape} {value.dtype}" for key, value in datasets(file).items())}
    model = models.make("joint spans")
    for weight in model.trainable_weights:
        weight.assign(weight * 0)
    model.load_weights(folders.read / path.name)
    return found | weights_of(model)


def other_format(form: str, name: str, folders: Folders) -> dict[str, Any]:
    """A model in another code base's format: its files, and what the files of before hold."""
    place = folders.write / f"{form}_{name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    encoder = encoder_of(name)
    if name.startswith("xlnet"):
        model = fill(take("XlnetPretrainer")(encoder))
    else:
        model = fill(take("AlbertPretrainer")(encoder, pair_task=None if name in ("roberta", "mpnet") else "sop"))
    try:
        take(f"save_{form}")(model, place)
    except take("UserError") as error:
        return {"refused": str(error)}
    found = contents(place)
    back = take(f"load_{form}")(folders.read / place.name)
    return found | prefixed("read", weights_of(back)) | names_of(back)


def contents(folder: Path) -> dict[str, Any]:
    """The files of a folder: texts as they are, and a digest of all others."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_file():
            data = path.read_bytes()
            text = path.suffix in (".json", ".txt", ".csv", ".tsv", ".vocab") or path.name == "checkpoint"
            lines = [] if not text else data.decode("utf-8", "replace").splitlines()
            kept = [line for line in lines if not any(word in line for word in _UNSTEADY)]
            value = "\n".join(kept) if text else hashlib.sha256(data).hexdigest()
            found[f"file/{path.relative_to(folder)}"] = value
    return found


def folder_of_texts(folders: Folders) -> dict[str, Any]:
    """What a model folder of before answers to texts, by the library's front door."""
    place = folders.write / "answering"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    wordpiece(place / "vocab.txt")
    found: dict[str, Any] = {}
    texts, seconds = ["the cat sat in paris", "a dull film."], ["a fine river", "who?"]
    kinds = {"classifier": (texts,), "regressor": (texts, seconds), "embedder": (texts,), "spans": (seconds, texts)}
    for head, columns in kinds.items():
        folder = place / head
        folder.mkdir()
        wordpiece(folder / "vocab.txt")
        encoder = encoder_of("albert", {"vocab_size": 120, "max_position_embeddings": 48})
        fill(models.heads()[head][0](encoder)).save(folder / "model.keras")
        loaded = take("load")(folders.read / "answering" / head)
        answers = loaded.predict(*columns)
        found[head] = answers if isinstance(answers, np.ndarray) else json.dumps(answers, default=float)
        found |= numbers(loaded.preprocessor(16)(*columns), f"{head}/features")
    return found
