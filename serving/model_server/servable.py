"""A loaded model version as requests see it: signatures, and a way to run them, batched or not."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from tensorflow.core.protobuf import meta_graph_pb2

from serving.model_server import metrics

# Combinations of outputs that a model is run for one by one. TensorFlow keeps a pruned graph (some 150 KB) for each as
# long as the model is loaded, and clients choose them.
_MAX_FETCH_SETS = 64


class Runner(Protocol):
    """What runs a graph: a SavedModel, or a queue of batches in front of one."""

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list: ...

    def close(self) -> None: ...


class Model(Runner, Protocol):
    """A Runner that is a whole model, of any format."""

    signatures: Mapping[str, meta_graph_pb2.SignatureDef]


class Servable:
    """Attributes: name, version, signatures (name -> SignatureDef), check_method."""

    def __init__(
        self,
        name: str,
        version: int,
        signatures: Mapping[str, meta_graph_pb2.SignatureDef],
        runner: Runner,
        check_method: bool = False,
    ):
        """check_method: refuse signatures whose method is not the API's; tf.saved_model.save calls all predict."""
        self.check_method = check_method
        self.name = name
        self.version = version
        self.signatures = signatures
        self._runner = runner
        self._fetch_sets: set[frozenset[str]] = set()

    def run(
        self, api: str, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None
    ) -> list[np.ndarray]:
        """Runs the graph once for the API of that name ("Predict", ...); feeds and fetches are tensor names."""
        begin = time.perf_counter()
        # Sorted and without repetition: TensorFlow and the batching take another order for another combination.
        names = sorted(self._fetch_set(frozenset(feeds), frozenset(fetches)))
        outputs = dict(zip(names, self._runner.run(feeds, names, timeout), strict=True))
        metrics.RUNTIME_LATENCY.observe((time.perf_counter() - begin) * 1e6, self.name, api, "TF1")
        return [outputs[name] for name in fetches]

    def _fetch_set(self, feeds: frozenset[str], fetches: frozenset[str]) -> frozenset[str]:
        """`fetches`; all outputs of their signature once too many combinations were asked for."""
        if fetches not in self._fetch_sets:
            if len(self._fetch_sets) >= _MAX_FETCH_SETS:
                return next(filter(fetches.issubset, self._outputs_of(feeds)), fetches)
            self._fetch_sets.add(fetches)
        return fetches

    def _outputs_of(self, feeds: frozenset[str]) -> Iterator[frozenset[str]]:
        for signature in self.signatures.values():
            if feeds == {info.name for info in signature.inputs.values()}:
                yield frozenset(info.name for info in signature.outputs.values())

    def close(self) -> None:
        self._runner.close()
