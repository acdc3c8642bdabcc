"""Checks the answers to a benchmark's requests."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from serving.client.messages import Arrays, read_prediction
from serving.wire.protos import PredictResponse

# A batch of another size changes the order of float32 sums, so answers differ a little without being wrong.
RELATIVE_TOLERANCE = 1e-2
ABSOLUTE_TOLERANCE = 1e-3


def read(answer: bytes) -> tuple[int | None, Arrays]:
    """Returns the version (None: unknown) and outputs of a serialized PredictResponse; no outputs if it is invalid."""
    try:
        response = PredictResponse.FromString(answer)
        return response.model_spec.version.value or None, read_prediction(response)
    except (DecodeError, ValueError, KeyError):
        return None, {}


def check(differing: Counter, references: Sequence[bytes], answered: int) -> dict:
    """Counts wrong answers, and those that were not compared; lists the versions that gave the `answered` ones.

    An answer is compared with its version's reference or, without one, that version's first answer to the request.
    """
    expected = {}
    for item, reference in enumerate(references):
        version, arrays = read(reference)
        expected[item, version] = arrays
    # All others are equal to the references.
    versions = {version for _, version in expected} if answered > differing.total() else set()
    wrong = 0
    for (item, answer), count in ((key, count) for key, count in differing.items() if key is not None):
        version, arrays = read(answer)
        versions.add(version)
        wrong += count * (not arrays or not agree(expected.setdefault((item, version), arrays), arrays))
    return {"wrong_answers": wrong, "not_compared": differing[None], "versions": sorted(versions - {None})}


def agree(expected: Arrays, actual: Arrays) -> bool:
    """Returns whether outputs agree: floats within the tolerance, all else exactly."""
    return expected.keys() == actual.keys() and all(_agree(expected[name], actual[name]) for name in expected)


def _agree(expected: np.ndarray, actual: np.ndarray) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if expected.dtype.kind == "f":
        return np.allclose(actual, expected, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE)
    return np.array_equal(actual, expected)
