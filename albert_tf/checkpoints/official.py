"""Checkpoints of google-research/albert, google-research/bert and brightmart/albert_zh (TensorFlow 1 bundles)."""

import os
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.variables import Source, build, encoder_of, extract, fill, mentions
from albert_tf.config import AlbertConfig
from tfrecords.errors import UserError
from tfrecords.files import make_output_dir

_SLOT = re.compile(r"/(adam_[mv]|Adam(_1)?|lamb_[mv])$|^(global_step|beta[12]_power|loss_scale.*)$")
_EMBEDDINGS = {
    "word_embeddings": "word_embeddings",
    "token_type_embeddings": "token_type_embeddings",
    "position_embeddings": "position_embeddings",
    "layer_norm/gamma": "LayerNorm/gamma",
    "layer_norm/beta": "LayerNorm/beta",
}
_HEADS = {
    "pooler/kernel": Source("bert/pooler/dense/kernel"),
    "pooler/bias": Source("bert/pooler/dense/bias"),
    "masked_lm/dense/kernel": Source("cls/predictions/transform/dense/kernel"),
    "masked_lm/dense/bias": Source("cls/predictions/transform/dense/bias"),
    "masked_lm/layer_norm/gamma": Source("cls/predictions/transform/LayerNorm/gamma"),
    "masked_lm/layer_norm/beta": Source("cls/predictions/transform/LayerNorm/beta"),
    "masked_lm/output_bias": Source("cls/predictions/output_bias"),
    "pair/kernel": Source("cls/seq_relationship/output_weights", transposed=True),
    "pair/bias": Source("cls/seq_relationship/output_bias"),
}
_DENSE = ("kernel", "bias")
_NORM = ("gamma", "beta")


def load_official(path: str | os.PathLike, model=None):
    """Loads a TensorFlow 1 checkpoint of an ALBERT or BERT.

    Args:
        path: a checkpoint's prefix (`.../model.ckpt-best`), or a folder holding one, with its `albert_config.json`
            or `bert_config.json` beside it.
        model: an AlbertEncoder, or any model here; its encoder (and, of an AlbertPretrainer, its heads) are set.
            Where None, an AlbertPretrainer is built from the configuration file, or an AlbertEncoder if the
            checkpoint has no heads.

    Returns:
        The model.

    Raises:
        UserError: the files cannot be read, or tensors do not fit; names are listed, and the model is unchanged.
    """
    prefix = checkpoint_prefix(path)
    tensors = read_tensors(prefix)
    is_bert = mentions(tensors, "/layer_0/")
    if model is None:
        config = AlbertConfig.from_json(config_file(Path(prefix).parent))
        pair_task = "nsp" if is_bert else "sop"
        has_pair = mentions(tensors, "cls/seq_relationship/")
        model = build(config, mentions(tensors, "cls/predictions/"), pair_task if has_pair else None)
    sources = official_sources(encoder_of(model).config, tensors)
    fill(model, sources, tensors, prefix)
    return model


def save_official(model, directory: str | os.PathLike, name: str = "model.ckpt-best") -> str:
    """Writes `directory/name.index`, `.data-00000-of-00001` and `albert_config.json` as google-research/albert does.

    Returns:
        The checkpoint's prefix.

    Raises:
        UserError: the model's configuration has no form in that code base.
    """
    config = encoder_of(model).config
    if config.hidden_act == "gelu_erf":
        raise UserError("the official code has no exact gelu; replace hidden_act 'gelu_erf' by 'gelu' (tanh) first")
    directory = make_output_dir(directory)
    tensors = extract(model, official_sources(config))
    return write_tensors(directory / name, tensors, config)


def write_tensors(prefix: Path, tensors: dict[str, np.ndarray], config: AlbertConfig) -> str:
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=[tensors[n] for n in names]
    )
    config.to_json(prefix.parent / "albert_config.json")
    return str(prefix)


def official_sources(config: AlbertConfig, present=()) -> dict[str, Source]:
    """Our names to those of the code base that wrote `present` (by default google-research/albert)."""
    if mentions(present, "/layer_shared/"):
        return _brightmart(config)
    if mentions(present, "/layer_0/") or (not present and config.sharing == "none"):
        return _bert(config)
    return _albert(config)


def _albert(config):
    sources = _common()
    for dense in ("kernel", "bias"):
        sources[f"embeddings/projection/{dense}"] = Source(f"bert/encoder/embedding_hidden_mapping_in/{dense}")
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            index = group * config.inner_group_num + inner
            scope = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
            attention, feed_forward = f"attention_{index}", f"feed_forward_{index}"
            for part in _DENSE:
                for name in ("query", "key", "value"):
                    sources[f"{attention}/{name}/{part}"] = Source(f"{scope}/attention_1/self/{name}/{part}")
                sources[f"{attention}/output/{part}"] = Source(f"{scope}/attention_1/output/dense/{part}")
                sources[f"{feed_forward}/intermediate/{part}"] = Source(f"{scope}/ffn_1/intermediate/dense/{part}")
                sources[f"{feed_forward}/output/{part}"] = Source(f"{scope}/ffn_1/intermediate/output/dense/{part}")
            for part in _NORM:
                sources[f"{attention}/layer_norm/{part}"] = Source(f"{scope}/LayerNorm/{part}")
                sources[f"{feed_forward}/layer_norm/{part}"] = Source(f"{scope}/LayerNorm_1/{part}")
    return sources


def _bert(config):
    return _common() | _bert_layers(config, [f"layer_{i}" for i in range(config.num_hidden_layers)])


def _brightmart(config):
    # Only the words are factorised: word_embeddings_2 is the projection, and it has no bias.
    projection = {"embeddings/projection/kernel": Source("bert/embeddings/word_embeddings_2")}
    return _common() | projection | _bert_layers(config, ["layer_shared"])


def _common():
    embeddings = {f"embeddings/{ours}": Source(f"bert/embeddings/{theirs}") for ours, theirs in _EMBEDDINGS.items()}
    return embeddings | _HEADS


def _bert_layers(config, layers):
    sources = {}
    for index, layer in enumerate(layers):
        scope, attention, feed_forward = f"bert/encoder/{layer}", f"attention_{index}", f"feed_forward_{index}"
        for part in _DENSE:
            for name in ("query", "key", "value"):
                sources[f"{attention}/{name}/{part}"] = Source(f"{scope}/attention/self/{name}/{part}")
            sources[f"{attention}/output/{part}"] = Source(f"{scope}/attention/output/dense/{part}")
            sources[f"{feed_forward}/intermediate/{part}"] = Source(f"{scope}/intermediate/dense/{part}")
            sources[f"{feed_forward}/output/{part}"] = Source(f"{scope}/output/dense/{part}")
        for part in _NORM:
            sources[f"{attention}/layer_norm/{part}"] = Source(f"{scope}/attention/output/LayerNorm/{part}")
            sources[f"{feed_forward}/layer_norm/{part}"] = Source(f"{scope}/output/LayerNorm/{part}")
    return sources


def checkpoint_prefix(path: str | os.PathLike) -> str:
    """The prefix that `path` names, or that is in the folder `path`."""
    path = Path(path)
    if path.suffix == ".index":
        path = path.with_suffix("")
    if path.with_name(path.name + ".index").is_file():
        return str(path)
    if not path.is_dir():
        raise UserError(f"no TensorFlow checkpoint at '{path}': there is no '{path}.index'")
    latest = tf.train.latest_checkpoint(str(path))
    found = sorted(str(index.with_suffix("")) for index in path.glob("*.index"))
    if latest in found:
        return latest
    if len(found) != 1:
        raise UserError(f"'{path}' holds {len(found)} TensorFlow checkpoints {found}; give one's prefix")
    return found[0]


def read_tensors(prefix: str) -> dict[str, np.ndarray]:
    """All tensors of a bundle by name, without optimizer slots and step counters."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        names = sorted(name for name in reader.get_variable_to_shape_map() if not _SLOT.search(name))
        return {name: reader.get_tensor(name) for name in names}
    except (tf.errors.OpError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise UserError(f"cannot read the TensorFlow checkpoint '{prefix}': {message}") from error


def config_file(directory: Path) -> Path:
    for name in ("albert_config.json", "bert_config.json", "config.json"):
        if (directory / name).is_file():
            return directory / name
    others = sorted(directory.glob("*config*.json"))
    if len(others) != 1:
        raise UserError(f"'{directory}' holds no albert_config.json or bert_config.json beside the checkpoint")
    return others[0]
