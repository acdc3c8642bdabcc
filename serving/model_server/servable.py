"""A loaded model version as requests see it: signatures, and a way to run them, batched or not."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from tensorflow.core.protobuf import meta_graph_pb2

from serving.model_server import metrics


class Runner(Protocol):
    """What runs a graph: a SavedModel, or a queue of batches in front of one."""

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list: ...

    def close(self) -> None: ...


class Servable:
    """Attributes: name, version, signatures (name -> SignatureDef)."""

    def __init__(self, name: str, version: int, signatures: Mapping[str, meta_graph_pb2.SignatureDef], runner: Runner):
        self.name = name
        self.version = version
        self.signatures = signatures
        self._runner = runner

    def run(
        self, api: str, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None
    ) -> list[np.ndarray]:
        """Runs the graph once for the API of that name ("Predict", ...); feeds and fetches are tensor names."""
        begin = time.perf_counter()
        outputs = self._runner.run(feeds, fetches, timeout)
        metrics.RUNTIME_LATENCY.observe((time.perf_counter() - begin) * 1e6, self.name, api, "TF1")
        return outputs

    def close(self) -> None:
        self._runner.close()
