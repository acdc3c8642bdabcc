"""TensorFlow 1 checkpoints of google-research/albert, google-research/bert, brightmart/albert_zh, zihangdai/xlnet."""

import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import official_xlnet as xlnet
from albert_tf.checkpoints.variables import (
    TABLES,
    Source,
    build_model,
    check_published,
    encoder_of,
    extract,
    fill,
    layer_sources,
    mentions,
)
from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import plan
from tfrecords.base.errors import UserError, first_line, refuse
from tfrecords.base.files import make_output_dir, write_json


def load_official(path: str | os.PathLike, model: keras.Model | None = None) -> keras.Model:
    """Loads a TensorFlow 1 checkpoint of an ALBERT, BERT or XLNet.

    Args:
        path: a checkpoint's prefix (`.../model.ckpt-best`) or folder. The folder has `albert_config.json`,
            `bert_config.json` or `xlnet_config.json`.
        model: the model or AlbertEncoder to fill. None builds one for the tensors: an AlbertPretrainer, a fine-tuned
            model, or an AlbertEncoder.

    Raises:
        UserError: files cannot be read, or tensors do not fit (then the model is unchanged).
    """
    prefix = checkpoint_prefix(path)
    tensors = read_tensors(prefix)
    if xlnet.is_official(tensors):
        tensors = xlnet.unstacked(tensors)
    if model is None:
        config = AlbertConfig.from_json(_config_file(Path(prefix).parent))
        task = "nsp" if mentions(tensors, "/layer_0/") else "sop"
        model = build_model(config, sources_of(config, tensors), tensors, task, where=prefix)
    fill(model, sources_of(encoder_of(model).config, tensors), tensors, prefix)
    return model


def save_official(model: keras.Model, directory: str | os.PathLike, name: str = "model.ckpt-best") -> str:
    """Writes `directory/name.index` and `.data-00000-of-00001` with the configuration.

    The format is XLNet's for relative positions, brightmart's for factorization "word", BERT's for a model without
    shared blocks or projection, and otherwise google-research/albert's. Files are bit-equal to those of the original
    code.

    Returns:
        The checkpoint's prefix.

    Raises:
        UserError: none of these formats can hold the model.
    """
    config = encoder_of(model).config
    sources = sources_for(config)
    tensors = extract(model, sources)
    if config.position_type == "relative":
        kind, values = "xlnet", xlnet.config_values(config)
        tensors = xlnet.stacked(tensors, config)
    else:
        kind, values = "bert" if mentions(tensors, "/layer_0/") else "albert", config.to_dict()
        if config.sharing == "none" and kind == "albert":
            values["num_hidden_groups"] = config.num_hidden_layers
    directory = make_output_dir(directory)
    write_tensors(directory / name, tensors)
    write_json(directory / f"{kind}_config.json", values)
    return str(directory / name)


def _config_file(directory: Path) -> Path:
    for name in ("albert_config.json", "bert_config.json", "xlnet_config.json", "config.json"):
        if (directory / name).is_file():
            return directory / name
    others = sorted(directory.glob("*config*.json"))
    if len(others) != 1:
        raise UserError(f"'{directory}' holds no albert_config.json or bert_config.json beside the checkpoint")
    return others[0]


_HEADS = {
    "pooler": "bert/pooler/dense",
    "masked_lm/dense": "cls/predictions/transform/dense",
    "masked_lm/layer_norm": "cls/predictions/transform/LayerNorm",
    # ALBERT's joint head for SQuAD 2.
    "start": "start_logits/dense",
    "end_hidden": "end_logits/dense_0",
    "end_norm": "end_logits/LayerNorm",
    "end": "end_logits/dense_1",
    "answer_hidden": "answer_class/dense_0",
    "answer": "answer_class/dense_1",
}
# The heads of the pair task, run_classifier and BERT's SQuAD 1.1.
_OUTPUTS = {"pair": "cls/seq_relationship/", "classifier": "", "span": "cls/squad/"}
_ALBERT_ATTENTION = {name: f"attention_1/self/{name}" for name in ("query", "key", "value")}
_ALBERT_ATTENTION |= {"output": "attention_1/output/dense", "layer_norm": "LayerNorm"}
_ALBERT_FEED_FORWARD = {
    "intermediate": "ffn_1/intermediate/dense",
    "output": "ffn_1/intermediate/output/dense",
    "layer_norm": "LayerNorm_1",
}
_BERT_ATTENTION = {name: f"attention/self/{name}" for name in ("query", "key", "value")}
_BERT_ATTENTION |= {"output": "attention/output/dense", "layer_norm": "attention/output/LayerNorm"}
_BERT_FEED_FORWARD = {"intermediate": "intermediate/dense", "output": "output/dense", "layer_norm": "output/LayerNorm"}


def sources_of(config: AlbertConfig, tensors: Collection[str]) -> dict[str, Source]:
    """Maps this package's variable names to those of a checkpoint with these `tensors`.

    Groups that the checkpoint lacks get the first group's weights, as in modeling.py:352-408.
    """
    if xlnet.is_official(tensors):
        return xlnet.official_sources(config)
    if mentions(tensors, "/layer_shared/"):
        # Only words are factorized: word_embeddings_2 is the projection, without a bias.
        projection = {"embeddings/projection/kernel": Source("bert/embeddings/word_embeddings_2")}
        return _common() | projection | _bert_blocks(["layer_shared"])
    if mentions(tensors, "/layer_0/"):
        return _common() | _bert_blocks([f"layer_{i}" for i in range(config.num_steps)])
    sources = {name: source._replace(name=_fold(source.name, tensors)) for name, source in _albert(config).items()}
    folded = sorted({source.name for name, source in _albert(config).items() if source.name != sources[name].name})
    if folded:
        logging.warning("not in the checkpoint, taken from its first group: %s", ", ".join(folded))
    return sources


def sources_for(config: AlbertConfig) -> dict[str, Source]:
    """Maps this package's variable names to those of an official checkpoint; raises UserError if no format fits."""
    if config.position_type == "relative":
        xlnet.check_form(config)
        return xlnet.official_sources(config)
    check_published(config, "the official code")
    refuse({
        f"the official code has no hidden_act '{config.hidden_act}'; its gelu is the tanh form, 'gelu'":
            config.hidden_act not in ("gelu", "relu", "tanh", "linear"),
        "the official code has no projection where embedding_size equals hidden_size":
            config.always_project and config.embedding_size == config.hidden_size,
    })  # fmt: skip
    if config.is_projected and config.factorization == "word":
        if config.sharing != "all" or config.num_hidden_groups > 1 or config.inner_group_num > 1:
            raise UserError("factorization 'word' has an official form only with one block for all layers")
        return sources_of(config, ["/layer_shared/"])
    if config.sharing == "none" and not config.is_projected:
        return sources_of(config, ["/layer_0/"])
    return _albert(config)


def _common() -> dict[str, Source]:
    tables = {f"embeddings/{name}": Source(f"bert/embeddings/{name}") for name in TABLES}
    layers = layer_sources({"embeddings/layer_norm": "bert/embeddings/LayerNorm"} | _HEADS)
    outputs = layer_sources(_OUTPUTS, "{layer}{part}", kernel="output_weights", bias="output_bias")
    return tables | layers | outputs | {"masked_lm/output_bias": Source("cls/predictions/output_bias")}


def _albert(config: AlbertConfig) -> dict[str, Source]:
    layers, inner = {"embeddings/projection": "bert/encoder/embedding_hidden_mapping_in"}, config.inner_group_num
    for step in plan(config):
        first, second = (
            f"bert/encoder/transformer/group_{index // inner}/inner_group_{index % inner}"
            for index in (step.attention, step.feed_forward)
        )
        layers |= {f"attention_{step.attention}/{ours}": f"{first}/{name}" for ours, name in _ALBERT_ATTENTION.items()}
        feed_forward = f"feed_forward_{step.feed_forward}"
        layers |= {f"{feed_forward}/{ours}": f"{second}/{name}" for ours, name in _ALBERT_FEED_FORWARD.items()}
    return _common() | layer_sources(layers)


def _bert_blocks(scopes: list[str]) -> dict[str, Source]:
    layers: dict[str, str] = {}
    for index, scope in enumerate(scopes):
        halves = {f"attention_{index}": _BERT_ATTENTION, f"feed_forward_{index}": _BERT_FEED_FORWARD}
        for half, names in halves.items():
            layers |= {f"{half}/{ours}": f"bert/encoder/{scope}/{name}" for ours, name in names.items()}
    return layer_sources(layers)


def _fold(name: str, tensors: Collection[str]) -> str:
    group_0 = re.sub(r"/group_\d+/", "/group_0/", name)
    inner_0 = re.sub(r"/inner_group_\d+/", "/inner_group_0/", name)
    both = re.sub(r"/inner_group_\d+/", "/inner_group_0/", group_0)
    return next((candidate for candidate in (name, group_0, inner_0, both) if candidate in tensors), name)


# Optimizer slots and counters of training checkpoints.
_KNOWN_LEFTOVER = re.compile(r"/(adam_[mv]|Adam(_1)?|lamb_[mv])$|^(global_step|beta[12]_power|loss_scale.*)$")


def checkpoint_prefix(path: str | os.PathLike) -> str:
    """Returns a checkpoint's prefix; `path` is the prefix or a folder, whose latest checkpoint counts."""
    path = Path(path)
    if path.suffix == ".index":
        path = path.with_suffix("")
    if path.with_name(path.name + ".index").is_file():
        return str(path)
    if not path.is_dir():
        raise UserError(f"no TensorFlow checkpoint at '{path}': there is no '{path}.index'")
    found = sorted(str(index.with_suffix("")) for index in path.glob("*.index"))
    try:
        latest = tf.train.latest_checkpoint(str(path))
    except ValueError:
        # The file `checkpoint` is empty or no text; TensorFlow itself passes over other damage.
        latest = None
    if latest in found:
        return latest
    if len(found) != 1:
        raise UserError(f"'{path}' holds {len(found)} TensorFlow checkpoints {found}; give one's prefix")
    return found[0]


def read_tensors(prefix: str) -> dict[str, np.ndarray]:
    """Returns a checkpoint's tensors by name, without what training left; warns of leftovers that are not known.

    A slot, such as an optimizer's moment or a moving average, has its variable's name, a part of its own, and the
    variable's shape (tensorflow/python/training/slot_creator.py). A counter is one number.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        left = {name for name, shape in shapes.items() if not shape or shapes.get(name.rpartition("/")[0]) == shape}
        if others := sorted({name.rpartition("/")[2] for name in left if not _KNOWN_LEFTOVER.search(name)}):
            logging.warning("'%s': passed over as what training left: %s", prefix, ", ".join(others))
        return {name: reader.get_tensor(name) for name in sorted(shapes.keys() - left)}
    except (tf.errors.OpError, ValueError, LookupError, RuntimeError) as error:
        raise UserError(f"cannot read the TensorFlow checkpoint '{prefix}': {first_line(error)}") from error


def write_tensors(prefix: str | os.PathLike, tensors: dict[str, np.ndarray]) -> None:
    """Writes a checkpoint as tf.train.Saver does, in one data file."""
    prefix, names = Path(prefix), sorted(tensors)
    values = [tensors[name] for name in names]
    with tempfile.TemporaryDirectory(dir=prefix.parent, prefix=".partial") as folder:
        temporary = str(Path(folder) / prefix.name)
        tf.raw_ops.SaveV2(prefix=temporary, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
        # The index last: without it there is no checkpoint.
        for suffix in (".data-00000-of-00001", ".index"):
            os.replace(temporary + suffix, f"{prefix}{suffix}")
