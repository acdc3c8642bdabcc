"""Loaded model versions."""

import contextlib
import ctypes
import gc
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of text models
from grpc import StatusCode
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.saved_model import loader_impl

from serving.model_server import telemetry
from serving.model_server.status import StatusError, invalid_argument
from serving.wire.tensors import MAX_RANK

# The maximum number of different output combinations. Clients choose them, and TensorFlow keeps a pruned graph (some
# 150 KB) for each until the model is unloaded.
_MAX_FETCH_SETS = 64


class GraphRunner(Protocol):
    """The interface to run a graph, directly or through a batching queue."""

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list: ...

    def close(self) -> None: ...


class WholeModel(GraphRunner, Protocol):
    """A GraphRunner with the signatures of a model."""

    signatures: Mapping[str, meta_graph_pb2.SignatureDef]


class Servable:
    """A loaded version with its signatures.

    `check_method`: whether to refuse signatures whose method is not the API's.
    """

    def __init__(
        self,
        name: str,
        version: int,
        signatures: Mapping[str, meta_graph_pb2.SignatureDef],
        runner: GraphRunner,
        check_method: bool = False,
    ):
        self.check_method = check_method
        self.name = name
        self.version = version
        self.signatures = signatures
        self._runner = runner
        self._fetch_sets: set[frozenset[str]] = set()

    def run(
        self, api: str, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None
    ) -> list[np.ndarray]:
        """Runs the graph once for `api` ("Predict", ...); feeds and fetches are tensor names."""
        begin = time.perf_counter()
        # Sorted and without repetition: TensorFlow and the batching take another order for another combination.
        names = sorted(self._fetch_set(frozenset(feeds), frozenset(fetches)))
        outputs = dict(zip(names, self._runner.run(feeds, names, timeout), strict=True))
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

    def close(self) -> None:
        self._runner.close()


class SavedModel:
    """A session on a SavedModel folder."""

    def __init__(self, path: str, tags: Sequence[str] = ("serve",), config: config_pb2.ConfigProto | None = None):
        _check_files(path, tags)
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        try:
            with self._graph.as_default(), _quiet_deprecations():
                meta_graph = tf.compat.v1.saved_model.loader.load(self._session, list(tags), path)
        except BaseException:
            self.close()
            raise
        self.signatures: dict[str, meta_graph_pb2.SignatureDef] = dict(meta_graph.signature_def)
        self._elements: dict[str, object] = {}
        for name in {info.name for signature in self.signatures.values() for info in signature.outputs.values()}:
            self._guard(name)
        self._session._extend_graph()

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs the graph once and returns one array per fetch.

        Only the operations check shapes, as in the C++ server. After `timeout` seconds it fails with DEADLINE_EXCEEDED.
        """
        options = config_pb2.RunOptions(timeout_in_ms=0 if timeout is None else max(1, int(timeout * 1000)))
        inputs = {self._element(name): value for name, value in feeds.items()}
        outputs = [self._element(name) for name in fetches]
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            # The wrapper under Session.run: the callables of _make_callable_from_options take no timeout per call.
            found = pywrap_tf_session.TF_SessionRun_wrapper(self._session._session, buffer, inputs, outputs, [], None)
            # A string without dimensions comes as bytes, which would lose their trailing zeros in an array of bytes.
            return [np.array(value, object) if isinstance(value, bytes) else value for value in found]
        except UnicodeDecodeError as error:
            # TensorFlow quotes the request's bytes in its message, which Python's binding wants to be UTF-8.
            raise invalid_argument(error.object.decode("utf-8", "replace")) from error
        except tf.errors.InternalError as error:
            if "Could not allocate ndarray" not in error.message:
                raise
            raise invalid_argument("an output has more dimensions, or larger ones, than NumPy takes") from error
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)

    def close(self) -> None:
        self._session.close()
        self._session = self._graph = self._elements = None
        # Graphs hold reference cycles, and freed weights stay with the allocator until it is asked.
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def _guard(self, name: str) -> None:
        # Fails the run if a string output has too many dimensions for NumPy, which would end the process.
        try:
            tensor = self._graph.get_tensor_by_name(name)
        except (KeyError, ValueError):
            return  # The fetch reports the error.
        if tensor.dtype != tf.string or (tensor.shape.rank is not None and tensor.shape.rank <= MAX_RANK):
            return
        complaint = f"output {name} has more than the {MAX_RANK} dimensions that this server answers"
        with self._graph.as_default(), tf.device(tensor.device):
            fits = tf.debugging.Assert(tf.rank(tensor) <= MAX_RANK, [complaint])
            with tf.control_dependencies([fits]):
                self._elements[name] = tf.identity(tensor)._as_tf_output()

    def _element(self, name: str):
        element = self._elements.get(name)
        if element is None:
            try:
                element = self._graph.as_graph_element(name, allow_operation=False)._as_tf_output()
            except (KeyError, ValueError) as error:
                message = f"Tensor {name}, specified in either feed_devices or fetch_devices was not found in the Graph"
                raise invalid_argument(message) from error
            self._elements[name] = element
        return element


def _check_files(path: str, tags: Sequence[str]) -> None:
    file = Path(path) / "saved_model.pb"
    if not file.is_file() and not file.with_suffix(".pbtxt").is_file():
        raise StatusError(
            StatusCode.NOT_FOUND,
            f"Could not find SavedModel .pb or .pbtxt at supplied export directory path: {path}. "
            "Check that the directory exists and that you have the right permissions for accessing it.",
        )
    try:
        meta_graphs = loader_impl.parse_saved_model(path).meta_graphs
    except OSError as error:
        raise StatusError(StatusCode.DATA_LOSS, f"Can't parse {file} as binary proto") from error
    if not any(set(graph.meta_info_def.tags) == set(tags) for graph in meta_graphs):
        raise StatusError(
            StatusCode.NOT_FOUND,
            f"Could not find meta graph def matching supplied tags: {{ {' '.join(tags)} }}. To inspect available "
            "tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`",
        )
    assets = (Path(path) / "assets").resolve()
    for asset in (asset for graph in meta_graphs for asset in graph.asset_file_def):
        if not (assets / asset.filename).resolve().is_relative_to(assets):
            raise invalid_argument(f"Asset '{asset.filename}' of {path} lies outside the model's folder")


@contextlib.contextmanager
def _quiet_deprecations():
    logger = logging.getLogger("tensorflow")

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    # A filter, not the logger's level, which two simultaneous loads would restore wrongly.
    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)
