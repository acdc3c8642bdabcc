from typing import Any

from albert_tf.base.layers import check_range
from albert_tf.config import AlbertConfig
from albert_tf.layers.padded import by_name
from tfrecords.base.errors import UserError


def check_values(features: Any, config: AlbertConfig) -> None:
    """Raises UserError for ids or positions out of range; symbolic tensors are not checked."""
    features = by_name(features)
    for name, (least, most) in _ranges(config, features["input_ids"].shape[-1]).items():
        if name in features:
            if "float" in str(features[name].dtype):
                raise UserError(f"{name}: {features[name].dtype} is not read; give whole numbers, such as int32")
            check_range(features[name], most, name, least)


def _ranges(config: AlbertConfig, length: int) -> dict[str, tuple[int, int]]:
    ranges = dict.fromkeys(("input_ids", "masked_lm_ids"), (0, config.vocab_size)) | {"next_sentence_labels": (0, 2)}
    positions = ("masked_lm_positions", "query_positions", "sequence_starts", "start_positions", "end_positions")
    ranges |= dict.fromkeys(positions, (0, length))
    if config.spec.has_types and config.type_vocab_size > 1:
        ranges["segment_ids"] = (0, config.type_vocab_size)
    if config.spec.has_positions:
        ranges["position_ids"] = (-config.position_offset, config.max_seq_length)
    return ranges
