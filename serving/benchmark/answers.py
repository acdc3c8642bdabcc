"""Checks the answers to a benchmark's requests."""

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
    """Returns a reader of JSON answers, which have no version: the reader sets `version`."""

    def read(answer: bytes) -> Answer | None:
        try:
            return Answer(rest.read_answer(answer), version)
        except ValueError:
            return None

    return read


def check(
    differing: Counter, references: Sequence[Answer | None], answered: Sequence[int] = (), read: Reader = read_grpc
) -> Checked:
    """Counts wrong answers, and all answers by version.

    An answer is compared with its version's reference or, without one, that version's first answer to the request.
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
        agrees, difference = compared(arrays, actual.arrays)
        wrong += count * (not agrees)
        worst = None if worst is None or difference is None else max(worst, difference)
    known = sorted(version for version, count in versions.items() if version is not None and count > 0)
    checked = any(reference is not None for reference in references)
    return {
        "answers": {"checked": checked, "wrong": wrong, "worst_difference": worst},
        "versions": {str(version): versions[version] for version in known},
    }


def disagreements(served: Sequence[Answer | None], expected: Sequence[Arrays]) -> int:
    """Counts served answers that differ from the in-process model's."""
    pairs = zip(served, expected, strict=True)
    return sum(answer is None or not compared(arrays, answer.arrays)[0] for answer, arrays in pairs)


def compared(expected: Arrays, actual: Arrays) -> tuple[bool, float | None]:
    """Returns whether outputs agree within the tolerance, and the largest difference (None if not comparable)."""
    if expected.keys() != actual.keys():
        return False, None
    agrees, worst = True, 0.0
    for name, array in expected.items():
        other = actual[name]
        if array.shape != other.shape or array.dtype != other.dtype:
            return False, None
        if array.dtype.hasobject:
            if not np.array_equal(array, other):
                return False, None
            continue
        if array.dtype.kind == "f":
            agrees &= np.allclose(other, array, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE)
        else:
            agrees &= np.array_equal(other, array)
        worst = max(worst, float(np.max(np.abs(array.astype(np.float64) - other.astype(np.float64)), initial=0.0)))
    return agrees, worst if np.isfinite(worst) else None
