"""Compares what two versions returned, array by array, and says what differs."""

import csv
import dataclasses
import fnmatch
from collections.abc import Sequence
from pathlib import Path

import numpy as np

Results = dict[str, dict[str, tuple[str, np.ndarray]]]


@dataclasses.dataclass(frozen=True)
class Allowance:
    """Says which arrays may differ by rounding, how much, and why.

    Attributes:
        cases: pattern of "GROUP: CASE", as of a shell.
        arrays: pattern of the arrays' names.
        largest: difference that is allowed.
        reason: why the numbers cannot be equal.
    """

    cases: str
    arrays: str
    largest: float
    reason: str


# Empty: two runs of one commit give the same bits in all cases.
ALLOWED: tuple[Allowance, ...] = ()


@dataclasses.dataclass(frozen=True)
class Difference:
    """One array that is not the same in both versions.

    Attributes:
        group: of the case.
        case: its name.
        array: the array's name.
        what: what differs, in words.
        largest: the largest difference of two numbers; NaN where there is none.
        count: elements that differ.
        size: elements in all.
        allowed: the reason why it may differ; "" where it may not.
    """

    group: str
    case: str
    array: str
    what: str
    largest: float = float("nan")
    count: int = 0
    size: int = 0
    allowed: str = ""


def compare(group: str, before: Results, after: Results, allowed: Sequence[Allowance] = ALLOWED) -> list[Difference]:
    """Returns what differs between two versions; a case that failed differs, also where it failed in both."""
    found = []
    for case in [*before, *(case for case in after if case not in before)]:
        if case not in before or case not in after:
            found.append(Difference(group, case, "", f"only {'before' if case in before else 'after'}"))
            continue
        ours, theirs = before[case], after[case]
        failures = [f"{side} {values['failed'][1]}" for side, values in (("before:", ours), ("after:", theirs))
                    if "failed" in values]  # fmt: skip
        if failures:
            found.append(Difference(group, case, "failed", "; ".join(failures)))
            continue
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            if name not in ours or name not in theirs:
                found.append(Difference(group, case, name, f"only {'before' if name in ours else 'after'}"))
            elif (difference := _difference(*ours[name], *theirs[name])) is not None:
                found.append(_judged(Difference(group, case, name, **difference), allowed))
    return found


def _judged(difference: Difference, allowed: Sequence[Allowance]) -> Difference:
    for one in allowed:
        case = f"{difference.group}: {difference.case}"
        matches = fnmatch.fnmatchcase(case, one.cases) and fnmatch.fnmatchcase(difference.array, one.arrays)
        # Not of NaN, which compares as false.
        if matches and difference.largest <= one.largest:
            return dataclasses.replace(difference, allowed=one.reason)
    return difference


def _difference(dtype: str, ours: np.ndarray, other_dtype: str, theirs: np.ndarray) -> dict | None:
    """What differs between two arrays; None where every bit is the same."""
    if dtype != other_dtype:
        return {"what": f"{dtype}, then {other_dtype}"}
    if ours.shape != theirs.shape:
        if dtype == "text":
            return _text_difference(ours, theirs)
        return {"what": f"shape {_shape(ours)}, then {_shape(theirs)}"}
    if ours.tobytes() == theirs.tobytes() and ours.dtype == theirs.dtype:
        return None
    if dtype == "text":
        return _text_difference(ours, theirs) if (ours != theirs).any() else None
    differs = _bits(ours) != _bits(theirs)
    one, other = _numbers(dtype, ours), _numbers(dtype, theirs)
    with np.errstate(invalid="ignore"):
        gaps = np.abs(one - other)[np.isfinite(one) & np.isfinite(other)]
    return {
        "what": "not the same bits",
        "largest": float(gaps.max(initial=0.0)),
        "count": int(differs.sum()),
        "size": int(ours.size),
    }


def _shape(array: np.ndarray) -> str:
    return "x".join(map(str, array.shape)) or "scalar"


def _bits(array: np.ndarray) -> np.ndarray:
    """bool [elements, bytes] or [elements]: what tells two elements apart, -0.0 and 0.0 too."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.kind == "f" and flat.dtype.itemsize in (2, 4, 8) else flat


def _numbers(dtype: str, array: np.ndarray) -> np.ndarray:
    if dtype == "bfloat16":
        return (array.astype("uint32") << 16).view("float32").astype("float64")
    return array.astype("float64")


def _text_difference(ours: np.ndarray, theirs: np.ndarray) -> dict:
    lines = ["\n".join(map(str, np.ravel(array))).split("\n") for array in (ours, theirs)]
    pairs = [(one, other) for one, other in zip(*lines) if one != other]
    pairs += [(one, "(none)") for one in lines[0][len(lines[1]) :]] + [
        ("(none)", one) for one in lines[1][len(lines[0]) :]
    ]
    place = _around(*pairs[0]) if pairs else ("", "")
    return {"what": f"'{place[0]}', then '{place[1]}'", "count": len(pairs), "size": max(map(len, lines))}


def _around(one: str, other: str, width: int = 40) -> tuple[str, str]:
    """The parts of two lines about the first character that differs."""
    first = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    start = max(first - width // 2, 0)
    return one[start : start + width], other[start : start + width]


def table(differences: Sequence[Difference], most: int = 4) -> str:
    """Returns a text for people: for each case the arrays that differ, the largest difference first."""
    by_case: dict[tuple[str, str], list[Difference]] = {}
    for difference in differences:
        by_case.setdefault((difference.group, difference.case), []).append(difference)
    lines = []
    for (group, case), found in by_case.items():
        lines.append(f"{group}: {case}")
        for one in sorted(found, key=lambda one: (bool(one.allowed), -np.nan_to_num(one.largest)))[:most]:
            largest = "" if np.isnan(one.largest) else f", largest {one.largest:.2g}"
            count = f", {one.count} of {one.size}" if one.size else ""
            reason = f" (allowed: {one.allowed})" if one.allowed else ""
            lines.append(f"    {one.array}: {one.what}{largest}{count}{reason}")
        if len(found) > most:
            lines.append(f"    and {len(found) - most} more arrays")
    return "\n".join(lines) if lines else "every array is the same to the bit"


def write_csv(path: Path, differences: Sequence[Difference]) -> None:
    """Writes all differences, one a line."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in dataclasses.fields(Difference)])
        writer.writerows(dataclasses.astuple(one) for one in differences)
