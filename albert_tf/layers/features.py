"""What a batch's features say: their names, where tokens stand, what makes a row."""

import difflib
from typing import Any

from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.extension import REGISTRY
from albert_tf.layers import Tensor
from albert_tf.layers.lookup import check_range, or_nan, plain
from tfrecords.base.errors import UserError

# As transformers calls them.
_ALIASES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_OF_ENCODER = ("input_ids", "input_mask", "segment_ids", "sequence_ids", "position_ids", "sequence_starts")
# What models read beside: places, labels and their weights, which the encoder passes over.
_OF_PRETRAINING = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels", "pair_weights")
_OF_EXTENSIONS = tuple(name for entry in REGISTRY.values() for name in entry.features)
_OF_SPANS = ("p_mask", "start_mask", "start_positions", "end_positions", "is_impossible")
NAMES = (*_OF_ENCODER, *_OF_EXTENSIONS, *_OF_PRETRAINING, *_OF_SPANS)


def by_name(features: Any) -> dict[str, Any]:
    """Gives features the names used here, of which transformers has others for two.

    Args:
        features: a dict of tensors, or input_ids alone.

    Returns:
        A dict with input_ids in it, whose names are all among NAMES.

    Raises:
        UserError: a name that no model here knows, one feature under two names, or no input_ids.
    """
    if not isinstance(features, dict):
        return {"input_ids": features}
    named = {_ALIASES.get(name, name): value for name, value in features.items()}
    for name in named:
        if name not in NAMES:
            near = difflib.get_close_matches(str(name), [*NAMES, *_ALIASES], n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_OF_ENCODER)}"
            raise plain(UserError(f"no model knows a feature '{name}'; {hint}"))
    if len(named) < len(features):
        both = [f"{alias} and {name}" for alias, name in _ALIASES.items() if alias in features and name in features]
        raise plain(UserError(f"the features hold {', '.join(both)}, which are the same; leave one out"))
    if "input_ids" not in named:
        raise plain(UserError(f"the features hold no input_ids, only {', '.join(named) or 'nothing'}"))
    return named


def check_features(features: dict[str, Any], config: AlbertConfig) -> None:
    """Raises UserError where features are given, by the names used here, that an encoder of `config` does not take."""
    for one in config.extensions:
        one.check_features(features)
    for extension, entry in REGISTRY.items():
        for name in entry.features:
            if name in features and config.extension(extension) is None:
                raise plain(UserError(f"{name} is for an encoder with {entry.asked_by}; leave it out"))


def token_positions(features: dict[str, Any], config: AlbertConfig) -> Tensor | None:
    """Gives every token's place, [batch, sequence], without position_offset; None where it is 0, 1, ... in all rows."""
    positions = features.get("position_ids")
    if positions is None and "sequence_ids" in features:
        positions = _packed(features["sequence_ids"])
    if positions is None and config.position_offset and "input_mask" in features:
        check_length(ops.shape(features["input_mask"])[1], config)
        positions = _unpadded(features["input_mask"])
    return positions


def check_length(length: Any, config: AlbertConfig) -> None:
    """Raises UserError where a row is longer than the positions, if its length is known when the graph is built."""
    if isinstance(length, int) and length > config.max_seq_length:
        limit, offset = config.max_position_embeddings, config.position_offset
        less = f" - {offset}" if offset else ""
        raise plain(UserError(f"a sequence of {length} tokens is over max_position_embeddings {limit}{less}; cut it"))


def _packed(sequence_ids: Tensor) -> Tensor:
    """Each token's place in its own packed sequence: how many earlier tokens carry the same number."""
    same = ops.cast(ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :]), "int32")
    return ops.sum(ops.tril(same, k=-1), axis=-1)


def _unpadded(input_mask: Tensor) -> Tensor:
    """Counts a row's tokens from 0; padding has -1, the row before the offset (transformers modeling_roberta.py:142).

    That is 0, 1, ... of rows padded at their end, and a place of its own for padding anywhere.
    """
    mask = ops.cast(ops.cast(input_mask, "bool"), "int32")
    return ops.cumsum(mask, axis=1) * mask - 1


def summary_columns(features: dict[str, Any], config: AlbertConfig) -> Tensor:
    """Gives the column of the token that stands for each row, int32 [batch]: the first, or the last.

    The last that is no padding, on whichever side padding is: XLNet's.
    """
    ids = features["input_ids"]
    if not config.spec.last_token:
        return ops.zeros_like(ops.cast(ids[:, 0], "int32"))
    mask = ops.cast(features.get("input_mask", ops.ones_like(ids)), "int32")
    return ops.max(mask * ops.arange(ops.shape(ids)[1], dtype="int32"), axis=1)


def summary_tokens(sequence_output: Tensor, features: dict[str, Any], config: AlbertConfig) -> Tensor:
    """Gives what stands for each row, [batch, hidden_size], or [batch, n, hidden_size] of packed sequences.

    Args:
        sequence_output: [batch, sequence, hidden_size].
        features: of the batch; sequence_starts where rows are packed.
        config: of the encoder.
    """
    starts = features.get("sequence_starts")
    if starts is None and not config.spec.last_token:
        return sequence_output[:, 0]
    columns = summary_columns(features, config)[:, None] if starts is None else ops.cast(starts, "int32")
    length = ops.shape(sequence_output)[1]
    if starts is not None:
        check_range(starts, length, "sequence_starts")
    tokens = ops.take_along_axis(sequence_output, columns[:, :, None], axis=1)
    if starts is None:
        return tokens[:, 0]
    return or_nan(tokens, columns[:, :, None], length)
