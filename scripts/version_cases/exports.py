"""Exports of every kind: what each signature answers, and the nodes of the graph by type."""

import functools
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import models
from .configurations import encoder_of
from .filled import fill
from .groups import Case, Folders
from .places import take
from .texts import PIECES, sentences, wordpiece

LENGTH = 24
# Heads that have a form for serving; by text those whose answers hang on strings most.
HEADS = (
    "classifier", "exiting classifier", "regressor", "token classifier", "spans",
    "exiting regressor", "exiting token classifier", "joint spans", "multiple choice", "embedder", "cls embedder",
    "encoder", "pretrainer",
)  # fmt: skip
BY_TEXT = ("classifier", "spans", "token classifier", "multiple choice", "pretrainer", "embedder", "regressor")
CONFIGURATIONS = {
    "float32": (
        "bert", "sharing ffn", "inner groups", "word factorization", "roberta", "modern rotary", "no bias", "glu",
        "epsilon", "plan", "step signal learned", "low rank", "halting act", "halting act_t2t",
        "window global", "six at once", "fixed point tolerance", "anderson phantom", "relative uni clamped",
        "relative untied", "xlnet", "random depth",
    ),
    "int8": (
        "bert", "roberta", "modern rotary", "low rank", "window global", "xlnet", "epsilon",
    ),
}  # fmt: skip
CONFIGURATIONS["bfloat16"] = CONFIGURATIONS["int8"]
OTHER_HEADS = dict.fromkeys(("int8", "bfloat16"), ("classifier", "joint spans", "embedder"))
# Of a manifest: the time, the folders, and digests of files that hold names of this run.
_UNSTEADY = ("created", "export", "files_sha256")
_TASKS = {"classifier": {"labels": ["bad", "good", "odd"], "inputs": ["text"]},
          "regressor": {"labels": None, "inputs": ["text", "text_b"]}}  # fmt: skip


def cases(folders: Folders, compute: str) -> Iterator[Case]:
    """Returns the cases of exports in an arithmetic; of float32 those of heads or those of configurations."""
    compute, _, only = compute.partition(" ")
    of = functools.partial(exported, folders=folders, compute=compute)
    if not only:
        for head in OTHER_HEADS.get(compute, HEADS):
            yield f"{compute}, {head}", functools.partial(of, head)
    if only or compute != "float32":
        for name in CONFIGURATIONS[compute]:
            yield f"{compute}, encoder of {name}", of, "encoder", name
    if not only and compute == "float32":
        for head in BY_TEXT:
            yield f"by text, {head}", functools.partial(of, head, inputs="text")
        for rule in ("patience", "movement"):
            yield f"exits by {rule}", functools.partial(of, "exiting classifier", exit_rule=rule)


def exported(head: str, name: str = "albert", *, folders: Folders, **options: Any) -> dict[str, Any]:
    """Exports a model, loads what was written, and calls every signature with a batch and with one row."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the ops of text inputs

    place = folders.scratch / "model"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    encoder = encoder_of(name, {"vocab_size": len(PIECES), "max_position_embeddings": 48})
    fill(models.heads()[head][0](encoder)).save(place / "model.keras")
    wordpiece(place / "vocab.txt")
    if head in _TASKS:
        (place / "task.json").write_text(json.dumps(_TASKS[head]))
    settings = {"max_seq_length": LENGTH, "warm_up_lengths": "", "num_choices": 2, "top_k": 3} | options
    settings = take("ExportSettings")(model=str(place), output_dir=str(place / "servable"), **settings)
    version = take("export")(settings)
    found: dict[str, Any] = nodes(version) | variables(version)
    loaded = tf.saved_model.load(str(version))
    for signature, function in sorted(loaded.signatures.items()):
        specs = function.structured_input_signature[1]
        for rows in (3, 1):
            inputs = {key: _input(key, spec, rows) for key, spec in specs.items()}
            outputs = function(**inputs)
            found |= {f"{signature}, {rows} rows/{key}": value.numpy() for key, value in outputs.items()}
    return found


def _input(name: str, spec: Any, rows: int) -> Any:
    """A tensor for an input of a signature."""
    import tensorflow as tf

    shape = [size if size is not None else LENGTH // 2 if place else rows for place, size in enumerate(spec.shape)]
    lengths = np.array([12, 7, 1] if rows == 3 else [7])
    if spec.dtype == tf.string:
        return tf.constant(np.array(_strings(name, shape, lengths), dtype=object), tf.string)
    source = np.random.default_rng(len(name) + rows)
    if name == "lengths":
        value = np.broadcast_to(lengths.reshape([rows] + [1] * (len(shape) - 1)), shape)
    elif len(shape) > 1:
        inside = np.arange(shape[-1]) < lengths.reshape([rows] + [1] * (len(shape) - 1))
        value = {"input_mask": inside, "segment_ids": (np.arange(shape[-1]) > 4) & inside}.get(name)
        value = source.integers(5, len(PIECES), shape) * inside if value is None else np.broadcast_to(value, shape)
    else:
        value = np.full(shape, 0.6) if spec.dtype.is_floating else source.integers(1, 3, shape)
    return tf.cast(tf.constant(np.array(value)), spec.dtype)


def _strings(name: str, shape: list[int], lengths: np.ndarray) -> Any:
    import tensorflow as tf

    texts = sentences(64, len(name))
    if name in ("inputs", "examples"):
        rows = []
        for length in lengths:
            ids = tf.train.Feature(int64_list=tf.train.Int64List(value=range(5, 5 + int(length))))
            text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[texts[length].encode()]))
            names = ("text", "text_b", "first", "second", "question", "context")
            features = {"input_ids": ids} | {one: text for one in names}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            rows.append(example.SerializeToString(deterministic=True))
        return rows
    count = int(np.prod(shape))
    return np.array(texts[:count], dtype=object).reshape(shape)


def nodes(version: Path) -> dict[str, str]:
    """Counts the nodes of a SavedModel's graph and its functions by type; the signatures and the manifest."""
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework import tensor_util

    model = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    every = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    counts = Counter(node.op for node in every)
    # What no answer to a few rows may show: the last bit of a range, or of what is clipped.
    values = [tensor_util.MakeNdarray(node.attr["value"].tensor) for node in every if node.op == "Const"]
    signatures = model.meta_graphs[0].signature_def
    lines = [
        f"{name} {signature.method_name} {side} {key} {tensor.dtype} {[size.size for size in tensor.tensor_shape.dim]}"
        for name, signature in sorted(signatures.items())
        for side, tensors in (("in", signature.inputs), ("out", signature.outputs))
        for key, tensor in sorted(tensors.items())
    ]
    manifest = json.loads((version / "assets.extra" / "manifest.json").read_text())
    steady = {key: value for key, value in manifest.items() if key not in _UNSTEADY}
    by_type = "\n".join(f"{op} {count}" for op, count in sorted(counts.items()))
    found = {"nodes": by_type, "functions": str(len(graph.library.function)), "signatures": "\n".join(lines)}
    return found | {"constants": digests(values), "manifest": json.dumps(steady, indent=1, sort_keys=True)}


def variables(version: Path) -> dict[str, str]:
    """The weights of a SavedModel, whatever their names."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    values = [reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if not name.startswith("_CHECK")]
    # A dropout's state, which every process draws anew, is int64 [2].
    return {"variables": digests([value for value in values if (value.dtype, value.shape) != (np.int64, (2,))])}


def digests(values: list[Any]) -> str:
    """Types, shapes and digests of arrays of numbers, sorted: the same whatever the arrays' names and order."""
    arrays = [np.asarray(value) for value in values]
    lines = [
        f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:12]} {_start(array)}"
        for array in arrays
        if array.dtype != object
    ]
    return "\n".join(f"{line} x {count}" for line, count in sorted(Counter(lines).items()))


def _start(array: np.ndarray) -> str:
    """The first numbers of an array, to know it by."""
    return " ".join(repr(float(number)) for number in array.ravel()[:2]) if array.dtype.kind in "fiu" else ""
