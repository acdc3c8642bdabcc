"""What training starts from: weights from anywhere, and their tokenizer."""

from typing import NamedTuple

import keras

from albert_tf import loading
from albert_tf.checkpoints.variables import encoder_of, named_variables
from albert_tf.config import AlbertConfig
from tfrecords.errors import UserError
from tfrecords.published_tokenizer import read_tokenizer
from tfrecords.tokenizer import Tokenizer


class Start(NamedTuple):
    """What a run starts from.

    Attributes:
        config: of the encoder to build.
        model: the model to take weights from; None from scratch.
        tokenizer: the one given or found beside the weights; None where there is neither.
    """

    config: AlbertConfig
    model: keras.Model | None
    tokenizer: Tokenizer | None


def load_start(init_from: str, config: str, tokenizer: str = "", lower_case: bool | None = None) -> Start:
    """Loads weights with their tokenizer, or reads a configuration.

    Args:
        init_from: see `loading.load`; empty: from scratch.
        config: a published configuration's name or a JSON file, where `init_from` is empty.
        tokenizer: a vocabulary or folder to use in place of the one beside the weights.
        lower_case: see `read_tokenizer`.

    Raises:
        UserError: as the loaders of checkpoints, configurations and tokenizers.
    """
    if init_from:
        loaded = loading.load(init_from, tokenizer, lower_case)
        return Start(encoder_of(loaded.model).config, loaded.model, loaded.tokenizer)
    return Start(read_config(config), None, read_tokenizer(tokenizer, lower_case) if tokenizer else None)


def read_config(config: str) -> AlbertConfig:
    """Reads a .json file, or finds the published configuration of that name."""
    return AlbertConfig.from_json(config) if config.endswith(".json") else AlbertConfig.named(config)


def needed_tokenizer(start: Start, init_from: str) -> Tokenizer:
    """The tokenizer of a start; raises UserError where there is none."""
    if start.tokenizer is not None:
        return start.tokenizer
    if init_from:
        raise UserError(f"'{init_from}' holds no tokenizer; give it by --tokenizer=...: a .model, vocab .txt or folder")
    raise UserError("--config starts from scratch and needs --tokenizer=...: a .model, vocab .txt or folder")


def copy_weights(source: keras.Model, target: keras.Model) -> list[str]:
    """Gives `target` the values of all variables that both have by name and shape.

    Returns:
        The names of those of `target` that keep their initial values.
    """
    values, variables = named_variables(source), named_variables(target)
    same = [name for name in variables if name in values and values[name].shape == variables[name].shape]
    for name in same:
        variables[name].assign(keras.ops.convert_to_numpy(values[name]))
    return [name for name in variables if name not in same]
