"""Weights and tokenizer that training starts from."""

import os
from typing import Any, NamedTuple

import keras

from albert_tf.checkpoints.variables import encoder_of, named_variables
from albert_tf.config import AlbertConfig, read_config
from albert_tf.config.extension import begins_plain
from albert_tf.config.registry import KEYS, owner_of
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.hub import find_model
from albert_tf.loading.load import load
from albert_tf.loading.own_tokenizer import difference_from_own
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.comparing import carry_over, difference


class Start(NamedTuple):
    """The model, configuration and tokenizer that a run starts from.

    Attributes:
        model: the model with the initial weights, or None.
        vocabulary: a message on how embeddings were adapted to a new vocabulary, or "".
    """

    config: AlbertConfig
    model: keras.Model | None
    tokenizer: Tokenizer | None
    task: dict[str, Any] = {}
    vocabulary: str = ""


def load_start(init_from: str, config: str, tokenizer: str = "", other_tokenizer: bool = False) -> Start:
    """Loads weights with their tokenizer or, without `init_from`, reads a configuration.

    `config` is a published configuration's name or a JSON file. With `init_from`, it may change dropouts and some
    settings of extensions, and add extensions that keep the initial outputs. For other arguments see `load`.
    """
    if init_from:
        loaded = load(init_from, tokenizer, other_tokenizer=other_tokenizer)
        own = encoder_of(loaded.model).config
        return Start(_agreed(own, config, init_from) if config else own, loaded.model, loaded.tokenizer, loaded.task)
    made = read_config(config)
    return Start(made, None, load_tokenizer(tokenizer).with_cls_last(made.spec.last_token) if tokenizer else None)


def needed_tokenizer(start: Start, init_from: str) -> Tokenizer:
    """Returns the tokenizer of `start`, or raises UserError."""
    if start.tokenizer is not None:
        return start.tokenizer
    why = f"'{init_from}' holds no tokenizer; give it by" if init_from else "--config starts from scratch and needs"
    raise UserError(f"{why} --tokenizer=...: a .model, vocab .txt or folder")


def load_pretraining_start(
    init_from: str, config: str, records: Tokenizer, tokenizer: str = "", length: int = 0
) -> Start:
    """Loads the weights that pre-training continues from or, without `init_from`, reads a configuration.

    `records` is the training records' tokenizer. If `tokenizer` is set, the weights are adapted to their vocabulary.
    For other arguments see `load_start`.
    """
    if tokenizer and (found := difference(load_tokenizer(tokenizer), records)):
        raise UserError(
            f"--tokenizer={tokenizer} is not the tokenizer that the records were made with ({found}); give the folder "
            "of the records, or build them anew with it"
        )
    start = load_start(init_from, "" if init_from else config)
    if start.model is None:
        # The records decide: a head over any other vocabulary could not be trained on them.
        return start._replace(config=start.config.replace(vocab_size=records.vocab_size), tokenizer=records)
    start = _with_vocabulary(start, init_from, records) if tokenizer else start
    if not tokenizer:
        _check_vocabulary(start, init_from, records)
    check_length(length, start.config, init_from)
    return start._replace(config=_agreed(start.config, config, init_from) if config else start.config)


def _check_vocabulary(start: Start, init_from: str, records: Tokenizer) -> None:
    place = find_model(init_from)
    folder = place if place.is_dir() else place.parent
    assert start.model is not None
    if found := difference_from_own(start.model, records, folder, start.tokenizer):
        raise UserError(
            f"the records were made with another vocabulary than '{init_from}' was trained with ({found}); build them "
            "anew with its tokenizer, or add --tokenizer=FOLDER OF THE RECORDS to give the model their vocabulary"
        )


def _with_vocabulary(start: Start, init_from: str, records: Tokenizer) -> Start:
    if start.tokenizer is None:
        raise UserError(
            f"'{init_from}' holds no tokenizer, so that nobody knows which pieces its rows are of; put the tokenizer "
            "that it was trained with into its folder"
        )
    if not difference(records, start.tokenizer):
        return start
    from albert_tf.checkpoints.resizing import keep_pieces

    carried = carry_over(records, start.tokenizer)
    model = keep_pieces(start.model, carried.ids, carried.row_splits)
    return start._replace(config=encoder_of(model).config, model=model, vocabulary=f"Vocabulary: {carried}")


def check_length(length: int, config: AlbertConfig, path: str | os.PathLike, flag: str = "") -> None:
    """Raises UserError if `length`, given by `flag` or the records, is too long for the model at `path`."""
    limit = config.max_seq_length
    if length <= limit:
        return
    if flag:
        said = f"{flag}={length} is more than the {limit} tokens that the model takes; give {flag}={limit} or less"
    else:
        said = f"the records are {length} tokens long, the model takes at most {limit}; build the records with "
        said += f"--max_seq_length={limit} or less"
    fix = "raise max_position_embeddings in --config"
    if path:
        command = f"python -m albert_tf.convert_checkpoint --input={path} --to=keras --output=longer/model.keras"
        fix = f"make the model longer: {command} --max_positions={length}, and then give the folder longer"
    raise UserError(f"{said}, or {fix}")


def _agreed(weights: AlbertConfig, config: str, init_from: str) -> AlbertConfig:
    said, set_before = read_config(config), weights.to_dict()
    names = weights.differing(said)
    free = [
        name
        for name in names
        if name.endswith("dropout_prob")
        or (name in KEYS and name in owner_of(name)[1].free)
        or (begins_plain(name) and name not in set_before)
    ]
    ignored = {"vocab_size", "initializer_range", "gate_init", *free}
    different = [
        f"{name}={getattr(said, name)!r} (weights: {getattr(weights, name)!r})" for name in names if name not in ignored
    ]
    if different:
        raise UserError(
            f"--config={config} and the weights of '{init_from}' disagree: {', '.join(sorted(different))}; "
            "leave out --config"
        )
    return weights.replace(**{name: getattr(said, name) for name in free})


def copy_weights(source: keras.Model, target: keras.Model) -> list[str]:
    """Copies variables with the same name and shape; returns the names of the target's other variables.

    A pair head is copied only for the same pair task. If the depth plans differ, each attention or feed-forward layer
    gets the source's weights of the first step that runs the layer.
    """
    values, variables = named_variables(source), named_variables(target)
    if getattr(source, "pair_task", None) != getattr(target, "pair_task", None):
        values = {name: value for name, value in values.items() if not name.startswith("pair/")}
    halves = _first_halves(encoder_of(source), encoder_of(target))
    kept = []
    for name, variable in variables.items():
        half, _, rest = name.partition("/")
        value = values.get(f"{halves.get(half, half)}/{rest}" if rest else name)
        if value is None or value.shape != variable.shape:
            kept.append(name)
        else:
            variable.assign(keras.ops.convert_to_numpy(value))
    return kept


def _first_halves(source: AlbertEncoder, target: AlbertEncoder) -> dict[str, str]:
    if source.config.depth_plan == target.config.depth_plan or len(source.steps) != len(target.steps):
        return {}
    names: dict[str, str] = {}
    for ours, theirs in zip(target.steps, source.steps):
        names.setdefault(f"attention_{ours.attention}", f"attention_{theirs.attention}")
        names.setdefault(f"feed_forward_{ours.feed_forward}", f"feed_forward_{theirs.feed_forward}")
    return names
