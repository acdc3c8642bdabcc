"""SavedModel versions, by TensorFlow: the one module of the server that imports it, once a version needs it."""

import contextlib
import ctypes
import gc
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of text models
from grpc import StatusCode
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.saved_model import loader_impl

from serving.model_server.configuration import read_text_proto
from serving.model_server.flags import ServerOptions
from serving.model_server.status import BY_NUMBER, StatusError, invalid_argument
from serving.wire.protos import SignatureDef
from serving.wire.tensors import MAX_RANK


class SavedModel:
    """A session on a SavedModel folder."""

    def __init__(self, path: str, options: ServerOptions | None = None):
        options = options or ServerOptions()
        tags = options.saved_model_tags.split(",")
        _check_files(path, tags)
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=session_config(options))
        try:
            with self._graph.as_default(), _quiet_deprecations(), _statuses():
                meta_graph = tf.compat.v1.saved_model.loader.load(self._session, tags, path)
        except BaseException:
            self.close()
            raise
        self.signatures = {
            name: SignatureDef.FromString(signature.SerializeToString())
            for name, signature in meta_graph.signature_def.items()
        }
        self._elements: dict[str, object] = {}
        for name in {info.name for signature in self.signatures.values() for info in signature.outputs.values()}:
            self._guard(name)
        self._session._extend_graph()
        _trim()

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs the graph once and returns one array per fetch.

        Only the operations check shapes, as in the C++ server. After `timeout` seconds it fails with DEADLINE_EXCEEDED.
        """
        options = config_pb2.RunOptions(timeout_in_ms=0 if timeout is None else max(1, int(timeout * 1000)))
        inputs = {self._element(name): value for name, value in feeds.items()}
        outputs = [self._element(name) for name in fetches]
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            with _statuses():
                # The wrapper under Session.run: the callables of _make_callable_from_options take no timeout per call.
                found = pywrap_tf_session.TF_SessionRun_wrapper(
                    self._session._session, buffer, inputs, outputs, [], None
                )
            # A string without dimensions comes as bytes, which would lose their trailing zeros in an array of bytes.
            return [np.array(value, object) if isinstance(value, bytes) else value for value in found]
        except UnicodeDecodeError as error:
            # TensorFlow quotes the request's bytes in its message, which Python's binding wants to be UTF-8.
            raise invalid_argument(error.object.decode("utf-8", "replace")) from error
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)

    def close(self) -> None:
        self._session.close()
        self._session = self._graph = self._elements = None
        _trim()

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


def _trim() -> None:
    # Graphs hold reference cycles, and what is freed stays with the allocator until it is asked.
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def _statuses():
    # Raises TensorFlow's errors as those of the server.
    try:
        yield
    except tf.errors.OpError as error:
        if "Could not allocate ndarray" in error.message:
            raise invalid_argument("an output has more dimensions, or larger ones, than NumPy takes") from error
        raise StatusError(BY_NUMBER.get(error.error_code, StatusCode.UNKNOWN), error.message) from error


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


def session_config(options: ServerOptions) -> config_pb2.ConfigProto:
    """Returns the configuration of sessions that the flags set."""
    config = config_pb2.ConfigProto()
    if options.tensorflow_session_config_file:
        read_text_proto(options.tensorflow_session_config_file, config)
    both = options.tensorflow_session_parallelism
    config.intra_op_parallelism_threads = (
        options.tensorflow_intra_op_parallelism or both or config.intra_op_parallelism_threads
    )
    config.inter_op_parallelism_threads = (
        options.tensorflow_inter_op_parallelism or both or config.inter_op_parallelism_threads
    )
    if options.per_process_gpu_memory_fraction:
        config.gpu_options.per_process_gpu_memory_fraction = options.per_process_gpu_memory_fraction
    if options.mixed_precision == "bfloat16":
        rewriter = config.graph_options.rewrite_options
        rewriter.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
    return config
