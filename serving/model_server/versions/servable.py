"""Loaded model versions."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from serving.model_server import telemetry
from serving.wire.protos import SignatureDef

# The maximum number of different output combinations. Clients choose them, and TensorFlow keeps a pruned graph (some
# 150 KB) for each until the model is unloaded.
_MAX_FETCH_SETS = 64


class Model(Protocol):
    """A loaded model, or a batching queue before it; feeds and fetches are the names of its signatures' tensors."""

    signatures: Mapping[str, SignatureDef]

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list: ...

    def close(self) -> None: ...


class Servable:
    """A version of a model.

    `check_method`: whether to refuse signatures whose method is not the API's.
    """

    def __init__(self, name: str, version: int, model: Model, check_method: bool = False):
        self.name = name
        self.version = version
        self.signatures = model.signatures
        self.check_method = check_method
        self.close = model.close
        self._model = model
        self._fetch_sets: set[frozenset[str]] = set()

    def run(
        self, api: str, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None
    ) -> list[np.ndarray]:
        """Runs the model once for `api` ("Predict", ...)."""
        begin = time.perf_counter()
        # Sorted and without repetition: TensorFlow and the batching take another order for another combination.
        names = sorted(self._fetch_set(frozenset(feeds), frozenset(fetches)))
        outputs = dict(zip(names, self._model.run(feeds, names, timeout), strict=True))
        telemetry.RUNTIME_LATENCY.labels(self.name, api, "TF1").observe((time.perf_counter() - begin) * 1e6)
        return [outputs[name] for name in fetches]

    def _fetch_set(self, feeds: frozenset[str], fetches: frozenset[str]) -> frozenset[str]:
        # Returns `fetches`, or after too many combinations all outputs of their signature.
        if fetches not in self._fetch_sets:
            if len(self._fetch_sets) >= _MAX_FETCH_SETS:
                return next(filter(fetches.issubset, self._outputs_of(feeds)), fetches)
            self._fetch_sets.add(fetches)
        return fetches

    def _outputs_of(self, feeds: frozenset[str]) -> Iterator[frozenset[str]]:
        for signature in self.signatures.values():
            if feeds == {info.name for info in signature.inputs.values()}:
                yield frozenset(info.name for info in signature.outputs.values())
