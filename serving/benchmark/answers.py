"""Whether what came back during the measurement is right: every answer against the reference for its request."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from serving.client.messages import Arrays, read_prediction
from serving.protos import PredictResponse

# A batch of another size changes the order of float32 sums, so answers differ a little without being wrong.
RELATIVE_TOLERANCE = 1e-2
ABSOLUTE_TOLERANCE = 1e-3


def check(differing: Counter, references: Sequence[bytes | None]) -> dict:
    """Counts over answers that were not their reference byte for byte: `wrong` is beyond the tolerance.

    `checked`: whether there were references at all. `worst_difference`: of any output element, absolute; None when an
    answer had other outputs, shapes or texts than its reference.
    """
    wrong, worst = 0, 0.0
    for (item, answer), count in differing.items():
        difference = largest_difference(references[item], answer)
        wrong += count * (difference is None or not agrees(references[item], answer))
        worst = None if worst is None or difference is None else max(worst, difference)
    return {
        "checked": any(reference is not None for reference in references),
        "wrong": wrong,
        "worst_difference": worst,
    }


def disagreements(served: Sequence[bytes], expected: Sequence[Arrays]) -> int:
    """How many served answers are not what the same model said in process."""
    found = [_read(answer) for answer in served]
    return sum(
        answer is None
        or answer.keys() != arrays.keys()
        or not all(_close(array, answer[name]) for name, array in arrays.items())
        for answer, arrays in zip(found, expected, strict=True)
    )


def agrees(reference: bytes, answer: bytes) -> bool:
    expected, found = _read(reference), _read(answer)
    if found is None or expected.keys() != found.keys():
        return False
    return all(_close(expected[name], found[name]) for name in expected)


def largest_difference(reference: bytes, answer: bytes) -> float | None:
    expected, found = _read(reference), _read(answer)
    if found is None or expected.keys() != found.keys():
        return None
    worst = 0.0
    for name, array in expected.items():
        if array.shape != found[name].shape or array.dtype != found[name].dtype:
            return None
        if array.dtype.hasobject:
            if not _close(array, found[name]):
                return None
        elif array.size:
            worst = max(worst, float(np.max(np.abs(array.astype(np.float64) - found[name].astype(np.float64)))))
    return worst if np.isfinite(worst) else None


def _read(answer: bytes) -> dict[str, np.ndarray] | None:
    try:
        return read_prediction(PredictResponse.FromString(answer))
    except (DecodeError, ValueError, KeyError):
        return None


def _close(expected: np.ndarray, found: np.ndarray) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if expected.dtype.kind != "f":
        return bool(np.array_equal(expected, found))
    return bool(np.allclose(found, expected, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE, equal_nan=False))
