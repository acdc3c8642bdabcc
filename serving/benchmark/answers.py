"""Checks the answers of a measurement."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError

from serving.benchmark import rest
from serving.benchmark.schema import Checked
from serving.client.messages import Arrays, read_prediction
from serving.wire.protos import PredictResponse

# A batch of another size changes the order of float32 sums, so answers differ a little without being wrong.
RELATIVE_TOLERANCE = 1e-2
ABSOLUTE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Answer:
    """An answer's outputs and model version (None if unknown)."""

    arrays: Arrays
    version: int | None


Reader = Callable[[bytes], Answer | None]


def read_grpc(answer: bytes) -> Answer | None:
    """Parses a serialized PredictResponse; returns None if it is invalid."""
    try:
        response = PredictResponse.FromString(answer)
        return Answer(read_prediction(response), response.model_spec.version.value or None)
    except (DecodeError, ValueError, KeyError):
        return None


def rest_reader(version: int | None) -> Reader:
    """Returns a reader of JSON answers, which do not contain their `version`."""

    def read(answer: bytes) -> Answer | None:
        try:
            return Answer(rest.read_answer(answer), version)
        except ValueError:
            return None

    return read


def check(
    differing: Counter, references: Sequence[Answer | None], answered: Sequence[int] = (), read: Reader = read_grpc
) -> Checked:
    """Counts wrong answers and the answers of each version.

    An answer is compared with its version's reference, else with its version's first answer to the request.
    `worst_difference` is None if outputs, shapes or texts differ.
    """
    expected, versions = {}, Counter()
    for item, reference in enumerate(references):
        if reference is not None:
            expected[item, reference.version] = reference.arrays
            versions[reference.version] += int(answered[item]) if len(answered) else 0
    wrong, worst = 0, 0.0
    for (item, answer), count in differing.items():
        if references[item] is not None:
            versions[references[item].version] -= count
        actual = read(answer)
        if actual is None:
            wrong, worst = wrong + count, None
            continue
        versions[actual.version] += count
        arrays = expected.setdefault((item, actual.version), actual.arrays)
        wrong += count * (not agree(arrays, actual.arrays))
        difference = largest_difference(arrays, actual.arrays)
        worst = None if worst is None or difference is None else max(worst, difference)
    known = sorted(version for version, count in versions.items() if version is not None and count > 0)
    checked = any(reference is not None for reference in references)
    return {
        "answers": {"checked": checked, "wrong": wrong, "worst_difference": worst},
        "versions": {str(version): versions[version] for version in known},
    }


def disagreements(served: Sequence[Answer | None], expected: Sequence[Arrays]) -> int:
    """Counts served answers that differ from the in-process model's."""
    return sum(
        answer is None or not agree(arrays, answer.arrays) for answer, arrays in zip(served, expected, strict=True)
    )


def agree(expected: Arrays, actual: Arrays) -> bool:
    """Returns whether outputs agree, within the tolerance."""
    return expected.keys() == actual.keys() and all(_close(expected[name], actual[name]) for name in expected)


def largest_difference(expected: Arrays, actual: Arrays) -> float | None:
    """Returns the largest absolute difference; None if outputs or shapes differ."""
    if expected.keys() != actual.keys():
        return None
    worst = 0.0
    for name, array in expected.items():
        if array.shape != actual[name].shape or array.dtype != actual[name].dtype:
            return None
        if array.dtype.hasobject:
            if not _close(array, actual[name]):
                return None
        elif array.size:
            worst = max(worst, float(np.max(np.abs(array.astype(np.float64) - actual[name].astype(np.float64)))))
    return worst if np.isfinite(worst) else None


def _close(expected: np.ndarray, actual: np.ndarray) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if expected.dtype.kind != "f":
        return bool(np.array_equal(expected, actual))
    return bool(np.allclose(actual, expected, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE, equal_nan=False))
