"""What cases return, in one file: arrays and texts by case and name, with their exact types."""

import json
from pathlib import Path
from typing import Any

import numpy as np

# What numpy.savez keeps of arrays whose type is of another library.
_RAW = {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}


def save(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """Writes the results of cases; see `load`."""
    keys, arrays = [], []
    for case, values in found.items():
        for name, value in values.items():
            value = np.frombuffer(value, "uint8") if isinstance(value, bytes) else np.asarray(value)
            if value.dtype == object:
                value = np.array([_text(one) for one in value.ravel()]).reshape(value.shape)
            keys.append((case, name, str(value.dtype) if value.dtype.kind != "U" else "text"))
            arrays.append(value.view(_RAW[str(value.dtype)]) if str(value.dtype) in _RAW else value)
    with open(path.with_suffix(".part"), "wb") as file:
        np.savez(file, json.dumps(keys), *arrays)
    path.with_suffix(".part").replace(path)


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def load(path: Path) -> dict[str, dict[str, tuple[str, np.ndarray]]]:
    """Reads the results of cases: by case and name, the exact type and the array."""
    found: dict[str, dict[str, tuple[str, np.ndarray]]] = {}
    with np.load(path) as file:
        for number, (case, name, dtype) in enumerate(json.loads(str(file["arr_0"]))):
            found.setdefault(case, {})[name] = dtype, file[f"arr_{number + 1}"]
    return found
