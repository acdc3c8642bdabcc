import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from tfrecords.base.errors import UserError

# Of a tensor's dimensions, which ids count in 32 bits.
_LARGEST = 2**31 - 1


def check_value(
    field: dataclasses.Field,
    value: Any,
    choices: Mapping[str, tuple] = {},
    limits: Mapping[str, tuple[str, Callable[[Any], bool]]] = {},
) -> None:
    """Raises UserError if a value has another type than its field (str, bool, number) or is negative.

    An int must fit 32 bits, and be at least 1 if its default is above 0. A name ending in "_prob" requires a value
    below 1. `choices` maps field names to the allowed values, `limits` to (description, condition).
    """
    name = field.name
    if field.type in (str, bool):
        if not isinstance(value, cast(type, field.type)):
            raise UserError(f"{name} must be a {cast(type, field.type).__name__}, not {value!r}")
        if name in choices and value not in choices[name]:
            raise UserError(f"{name} '{value}' is none of {', '.join(choices[name])}")
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{name} must be a number, not {value!r}")
    # Counts that may be 0 have the default 0.
    least = min(cast(float, field.default), 1)
    if field.type is int and not (isinstance(value, int) and least <= value <= _LARGEST):
        raise UserError(f"{name} must be a whole number of at least {least}, in 32 bits, not {value}")
    if name.endswith("_prob") and not 0 <= value < 1:
        raise UserError(f"{name} must be a probability below 1, not {value}")
    if field.type is float and not (value >= 0 and math.isfinite(value)):
        raise UserError(f"{name} must be finite and not negative, not {value}")
    if name in limits and not limits[name][1](value):
        raise UserError(f"{name} must be {limits[name][0]}, not {value}")
