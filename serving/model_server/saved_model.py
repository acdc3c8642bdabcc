"""One SavedModel version on disk, loaded and ready to run."""

import contextlib
import ctypes
import gc
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of text models
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.client import pywrap_tf_session

from serving.model_server.status import NOT_FOUND, ServingError, invalid_argument

_INIT_SIGNATURE = "__saved_model_init_op"


class SavedModel:
    """A session on the graph of a SavedModel folder.

    Attributes:
      path: the version folder.
      signatures: name -> SignatureDef, as exported.
    """

    def __init__(self, path: str, tags: Sequence[str] = ("serve",), config: config_pb2.ConfigProto | None = None):
        """Raises ServingError or tf.errors.OpError when the folder holds no such model."""
        self.path = path
        _check_present(path, tags)
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

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs the graph once.

        Args:
          feeds: tensor name ("x:0") -> array. Its dtype is checked by the session, its shape by nobody but the
            operations that read it, as in the C++ server: Session.run would refuse what the export did not declare.
          fetches: tensor names.
          timeout: seconds until the run is abandoned with DEADLINE_EXCEEDED.
        Returns one array per fetch.
        """
        options = config_pb2.RunOptions(timeout_in_ms=0 if timeout is None else max(1, int(timeout * 1000)))
        inputs = {self._element(name): value for name, value in feeds.items()}
        outputs = [self._element(name) for name in fetches]
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            # The wrapper under Session.run: the callables of _make_callable_from_options take no timeout per call.
            return pywrap_tf_session.TF_SessionRun_wrapper(self._session._session, buffer, inputs, outputs, [], None)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)

    def close(self) -> None:
        self._session.close()
        self._session = self._graph = self._elements = None
        # Graphs hold reference cycles, and freed weights stay with the allocator until it is asked.
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

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


def _check_present(path: str, tags: Sequence[str]) -> None:
    if not any((Path(path) / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise ServingError(
            NOT_FOUND,
            f"Could not find SavedModel .pb or .pbtxt at supplied export directory path: {path}. "
            "Check that the directory exists and that you have the right permissions for accessing it.",
        )


@contextlib.contextmanager
def _quiet_deprecations():
    """The TF1 loader is the only one that keeps a session; its deprecation warning would greet every load."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
