"""What fine-tuning starts from: an encoder with weights from anywhere, and its tokenizer."""

from pathlib import Path

import keras

from albert_tf.checkpoints import formats
from albert_tf.checkpoints.variables import encoder_of, named_variables
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from tfrecords.errors import UserError
from tfrecords.tokenizer import TOKENIZER_FILE, Tokenizer, load_tokenizer


def find_tokenizer(tokenizer: str, init_from: str) -> Tokenizer:
    """The tokenizer given, or else the one beside the checkpoint.

    Raises:
        UserError: there is none, or there are several.
    """
    if tokenizer:
        return load_tokenizer(tokenizer)
    if not init_from:
        raise UserError("--config starts from scratch and needs --tokenizer=...: a .model, vocab .txt or folder")
    folder = Path(init_from) if Path(init_from).is_dir() else Path(init_from).parent
    if (folder / TOKENIZER_FILE).is_file():
        return load_tokenizer(folder)
    found = sorted([*folder.glob("*.model"), *folder.glob("*vocab*.txt")])
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(f"of tokenizers '{folder}' holds {names}; say which is meant by --tokenizer=...")
    return load_tokenizer(found[0])


def load_start(init_from: str, config: str) -> tuple[AlbertConfig, AlbertEncoder | None]:
    """The configuration to build, and the encoder to take weights from, if any.

    Raises:
        UserError: as the loaders of checkpoints and configurations.
    """
    if init_from:
        encoder = encoder_of(formats.load(init_from))
        return encoder.config, encoder
    is_file = config.endswith(".json")
    return (AlbertConfig.from_json(config) if is_file else AlbertConfig.named(config)), None


def copy_weights(source: AlbertEncoder, target: AlbertEncoder) -> None:
    """Gives `target` the values of all variables that both have: all but, at most, the pooler's."""
    values, variables = named_variables(source), named_variables(target)
    for name in variables.keys() & values.keys():
        variables[name].assign(keras.ops.convert_to_numpy(values[name]))
