"""Checkpoints of google-research/albert, google-research/bert and brightmart/albert_zh."""

import os
from pathlib import Path

from albert_tf.checkpoints.build import build
from albert_tf.checkpoints.bundle import checkpoint_prefix, read_tensors, write_tensors
from albert_tf.checkpoints.official_names import sources_for, sources_of
from albert_tf.checkpoints.variables import encoder_of, extract, fill, mentions
from albert_tf.config import AlbertConfig
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir


def load_official(path: str | os.PathLike, model=None):
    """Loads a TensorFlow 1 checkpoint of an ALBERT or BERT.

    Args:
        path: a checkpoint's prefix (`.../model.ckpt-best`), or a folder holding one, with its `albert_config.json`
            or `bert_config.json` beside it.
        model: an AlbertEncoder, or any model here, to be filled. Where None, the model that the checkpoint holds is
            built from the configuration file: an AlbertPretrainer, a fine-tuned model, or an AlbertEncoder.

    Returns:
        The model.

    Raises:
        UserError: the files cannot be read, or tensors do not fit; names are listed, and the model is unchanged.
    """
    prefix = checkpoint_prefix(path)
    tensors = read_tensors(prefix)
    if model is None:
        config = AlbertConfig.from_json(_config_file(Path(prefix).parent))
        task = "nsp" if mentions(tensors, "/layer_0/") else "sop"
        model = build(config, sources_of(config, tensors), tensors, task)
    fill(model, sources_of(encoder_of(model).config, tensors), tensors, prefix)
    return model


def save_official(model, directory: str | os.PathLike, name: str = "model.ckpt-best") -> str:
    """Writes `directory/name.index` and `.data-00000-of-00001` with the configuration beside them.

    The form is google-research/albert's, or BERT's for an unshared model without projection, or brightmart's for
    factorization "word"; bit-equal to what the code of that name would write.

    Returns:
        The checkpoint's prefix.

    Raises:
        UserError: the model has no form in these code bases.
    """
    config = encoder_of(model).config
    sources = sources_for(config)
    tensors = extract(model, sources)
    directory = make_output_dir(directory)
    write_tensors(directory / name, tensors)
    config.to_json(directory / ("bert_config.json" if mentions(tensors, "/layer_0/") else "albert_config.json"))
    return str(directory / name)


def _config_file(directory):
    for name in ("albert_config.json", "bert_config.json", "config.json"):
        if (directory / name).is_file():
            return directory / name
    others = sorted(directory.glob("*config*.json"))
    if len(others) != 1:
        raise UserError(f"'{directory}' holds no albert_config.json or bert_config.json beside the checkpoint")
    return others[0]
