"""The names of what models are called with: ours, transformers' for the same, and no others."""

import difflib
from typing import Any

from tfrecords.base.errors import UserError

# As transformers calls them.
_ALIASES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_OF_ENCODER = ("input_ids", "input_mask", "segment_ids", "sequence_ids", "position_ids", "sequence_starts")
# What models read beside: places, labels and their weights, which the encoder passes over.
_OF_PRETRAINING = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels", "pair_weights")
_OF_SPANS = ("p_mask", "start_mask", "start_positions", "end_positions", "is_impossible")
NAMES = (*_OF_ENCODER, *_OF_PRETRAINING, *_OF_SPANS)


def named(features: Any) -> dict[str, Any]:
    """Gives features the names used here.

    Args:
        features: a dict of tensors, or input_ids alone.

    Returns:
        A dict with input_ids in it, whose names are all among NAMES.

    Raises:
        UserError: a name that no model here knows, one feature under two names, or no input_ids.
    """
    if not isinstance(features, dict):
        return {"input_ids": features}
    found = {_ALIASES.get(name, name): value for name, value in features.items()}
    for name in found:
        if name not in NAMES:
            near = difflib.get_close_matches(str(name), [*NAMES, *_ALIASES], n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_OF_ENCODER)}"
            raise _plain(UserError(f"no model knows a feature '{name}'; {hint}"))
    if len(found) < len(features):
        both = [f"{alias} and {name}" for alias, name in _ALIASES.items() if alias in features and name in features]
        raise _plain(UserError(f"the features hold {', '.join(both)}, which are the same; leave one out"))
    if "input_ids" not in found:
        raise _plain(UserError(f"the features hold no input_ids, only {', '.join(found) or 'nothing'}"))
    return found


def _plain(error: UserError) -> UserError:
    # Keras leaves errors with this mark alone; others it puts inside its account of every nested call.
    error._keras_call_info_injected = True
    return error
