"""LiteRT (TensorFlow Lite) versions, as `serving.export --engine=litert` writes them."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from google.protobuf.message import DecodeError
from grpc import StatusCode

from serving.lite.model import LiteModel
from serving.lite.signatures import signatures_of
from serving.model_server.status import StatusError, invalid_argument
from serving.wire.protos import SignatureDef, TensorInfo
from serving.wire.tensors import type_name, type_number


class LiteVersion:
    """A version that `serving.export --engine=litert` wrote; its tensors are named SIGNATURE/ALIAS."""

    def __init__(self, path: str, threads: int = 0):
        self._functions = signatures_of(LiteModel(path, threads))
        self.signatures = {name: SignatureDef(method_name=one.method) for name, one in self._functions.items()}
        for name, one in self._functions.items():
            for side in ("inputs", "outputs"):
                for alias, (dtype, shape) in getattr(one, side).items():
                    _fill_info(getattr(self.signatures[name], side)[alias], f"{name}/{alias}", dtype, shape)

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs each signature of the fetches; after `timeout` seconds it ends behind a row with DEADLINE_EXCEEDED."""
        end = math.inf if timeout is None else time.monotonic() + timeout

        def advance() -> None:
            if time.monotonic() > end:
                raise StatusError(StatusCode.DEADLINE_EXCEEDED, "the time limit of the request passed")

        found: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(fetch.partition("/")[0] for fetch in fetches):
            inputs = _checked(self._functions[name].inputs, {
                alias: feeds[f"{name}/{alias}"] for alias in self._functions[name].inputs
            })  # fmt: skip
            try:
                answers = self._functions[name].call(inputs, advance)
            except (ValueError, RuntimeError, DecodeError) as error:
                # The trial rows were answered, so the request is to blame.
                raise invalid_argument(str(error)) from error
            found |= {f"{name}/{alias}": value for alias, value in answers.items()}
        return [found[fetch] for fetch in fetches]

    def close(self) -> None:
        self._functions = {}


def _checked(specs: Mapping[str, tuple], values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    # Refuses what would be read as something else: another type, rank or number of rows.
    rows = {len(value) for value in values.values() if np.ndim(value)}
    for alias, (dtype, shape) in specs.items():
        value = values[alias]
        fits = value.ndim == len(shape) and all(size in (-1, given) for size, given in zip(shape, value.shape))
        if value.dtype != dtype or not fits or len(rows) != 1:
            wanted, given = (type_name(type_number(one)) for one in (dtype, value.dtype))
            raise invalid_argument(
                f"{alias} is {given} {list(value.shape)}; this model takes {wanted} {list(shape)}, and as many rows of "
                "each input"
            )
    return values


def _fill_info(info: TensorInfo, name: str, dtype: type, shape: Iterable[int]) -> None:
    info.name, info.dtype = name, type_number(dtype)
    info.tensor_shape.SetInParent()
    for size in shape:
        info.tensor_shape.dim.add(size=size)
