"""The models in service: loaded, warmed up, and found by name, version or label."""

import contextlib
import functools
import importlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from google.protobuf.message import DecodeError
from grpc import StatusCode

from serving.lite import description
from serving.model_server import configuration, telemetry
from serving.model_server.batching import Batching, BatchingRunner
from serving.model_server.flags import ServerOptions
from serving.model_server.prediction import CLASSIFY, REGRESS, infer, multi_inference, predict
from serving.model_server.status import StatusError, as_status_error, invalid_argument
from serving.model_server.versions import litert
from serving.model_server.versions.manager import Manager, Model, Servable, Version
from serving.model_server.versions.source import StoragePathSource
from serving.wire.protos import ModelConfig, ModelServerConfig, ModelSpec, PredictionLog
from tfrecords.base.machine.cpu import cores
from tfrecords.base.script import start_tensorflow

_LOG = logging.getLogger(__name__)
_WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
_MAX_WARMUP_RECORDS = 1000
_WARMUP_METHODS = {"classify_log": CLASSIFY, "regress_log": REGRESS}


class ServerCore:
    """Loads models and finds them for requests."""

    def __init__(self, options: ServerOptions):
        self.options = options
        self.interrupted = threading.Event()
        if options.tensorflow_session_config_file:
            # A wrong file is to be known before the first version is loaded.
            _saved_models(options.tensorflow_session_config_file).session_config(options)
        self._batching = Batching(options)
        self._manager = Manager(
            self._load,
            max_load_retries=max(0, options.max_num_load_retries),
            retry_interval=options.load_retry_interval_micros / 1e6,
            load_threads=max(1, options.num_load_threads),
            unload_threads=max(1, options.num_unload_threads),
            initial_load_threads=4 * cores(),
        )
        self._source = StoragePathSource(self._manager.aspire, options.file_system_poll_wait_seconds)
        self._models: dict[str, ModelConfig] = {}
        self._labels: dict[str, dict[str, int]] = {}
        # Models that a reload brought, for which it or the one that took its place waits.
        self._awaited: set[str] = set()
        self._reloading = threading.Lock()
        self._generation = 0

    def start(self) -> None:
        """Loads the configured models and waits for each; meanwhile rereads the config file."""
        models = configuration.checked_models(configuration.server_config(self.options), {})
        # Before anything is loaded: the real server, too, refuses labels at start without the flag.
        self._labels = self._checked_labels(models)
        self._configure(models)
        while (failed := self._wait_for_all()) is None:
            self.reread()
        _raise_failed(failed, "servable(s)")
        self._manager.end_initial_load()

    def reload(self, config: ModelServerConfig, timeout: float | None = None) -> None:
        """Replaces the configuration and waits for its new models; loading goes on after `timeout` seconds.

        Raises:
            StatusError: a bad configuration, a failed model, a timeout (DEADLINE_EXCEEDED) or another reload (ABORTED).
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with self._reloading:
            models = configuration.checked_models(config, self._models)
            old = {name: model.base_path for name, model in self._models.items()}
            moved = {name for name, model in models.items() if old.get(name) != model.base_path}
            self._awaited = (self._awaited & models.keys()) | moved
            self._generation += 1
            self._configure(models)
            names = sorted(self._awaited)
            check = functools.partial(self._check_wait, self._generation, deadline)
        failed = self._manager.wait_until_available(names, check)
        self._are_labels_settled(models, check)
        with self._reloading:
            check()
            self._awaited.clear()
            try:
                self._labels = self._checked_labels(models)
            finally:
                _raise_failed(failed, "model(s)")

    def reread(self) -> None:
        """Reloads the config file; logs an error if that fails."""
        try:
            config = configuration.server_config(self.options)
            with self._reloading:
                models = configuration.checked_models(config, self._models)
                self._awaited &= models.keys()
                self._generation += models != self._models
                self._configure(models)
                if self._are_labels_settled(models, lambda: True):
                    self._labels = self._checked_labels(models)
        except Exception as error:
            _LOG.error("Reloading the model config file failed: %s", as_status_error(error))

    @contextlib.contextmanager
    def use(self, spec: ModelSpec) -> Iterator[Servable]:
        """Yields the servable that `spec` names, open within the context."""
        name, number = self._resolved(spec)
        with self._manager.use(name, number) as version:
            yield version.servable

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(self._models)

    def states(self, name: str) -> list[tuple[int, int, StatusError | None]]:
        return self._manager.states(name)

    def close(self) -> None:
        self._source.close()
        self._manager.close()
        self._batching.close()

    def _configure(self, models: dict[str, ModelConfig]) -> None:
        self._models = models
        self._source.configure(models)

    def _wait_for_all(self) -> list[Version] | None:
        """Returns the versions that failed; None if the config file must be reread first."""
        pause = self.options.model_config_file_poll_wait_seconds if self.options.model_config_file else 0
        end = time.monotonic() + (pause if pause > 0 else math.inf)
        failed = self._manager.wait_until_available(
            self._models, lambda: self.interrupted.is_set() or time.monotonic() >= end
        )
        return failed if self.interrupted.is_set() or time.monotonic() < end else None

    def _check_wait(self, generation: int, deadline: float) -> bool:
        if self._generation != generation:
            raise StatusError(StatusCode.ABORTED, "A later configuration took the place of this one")
        if self.interrupted.is_set():
            raise StatusError(StatusCode.UNAVAILABLE, "The server is stopping")
        if time.monotonic() >= deadline:
            raise StatusError(StatusCode.DEADLINE_EXCEEDED, "Not every model became available in time; loading goes on")
        return False

    def _are_labels_settled(self, models: dict[str, ModelConfig], stop: Callable[[], bool]) -> bool:
        return all(
            self._manager.wait_until_settled(name, model.version_labels.values(), stop)
            for name, model in models.items()
        )

    def _checked_labels(self, models: dict[str, ModelConfig]) -> dict[str, dict[str, int]]:
        allow_new = self.options.allow_version_labels_for_unavailable_models
        return configuration.checked_labels(models, self._labels, self._manager.available, allow_new)

    def _resolved(self, spec: ModelSpec) -> tuple[str, int | None]:
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        choice = spec.WhichOneof("version_choice")
        if choice == "version":
            return spec.name, spec.version.value
        if choice == "version_label":
            version = self._labels.get(spec.name, {}).get(spec.version_label)
            if version is None:
                raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")
            return spec.name, version
        return spec.name, None

    def _read(self, path: str) -> Model:
        options, folder = self.options, Path(path)
        is_saved_model = (folder / "saved_model.pb").exists() or (folder / "saved_model.pbtxt").exists()
        if (folder / description.FILE).exists() and (options.prefer_tflite_model or not is_saved_model):
            return litert.LiteVersion(path)
        if options.prefer_tflite_model and (folder / description.MODEL_FILE).is_file():
            message = f"{path} has no {description.FILE}: of LiteRT, this server answers what serving.export writes"
            raise StatusError(StatusCode.UNIMPLEMENTED, f"{message}; leave out --prefer_tflite_model")
        return _saved_models(path).SavedModel(path, options)

    def _load(self, name: str, version: int, path: str) -> Servable:
        _LOG.info("Loading servable version {name: %s version: %d} from %s", name, version, path)
        model = self._read(path)
        telemetry.served.add(name)
        try:
            runner = self._batching.wrapped(model, path)
            servable = Servable(name, version, runner, self.options.enable_signature_method_name_check)
            if self.options.enable_model_warmup:
                with runner.on_own_thread() if isinstance(runner, BatchingRunner) else contextlib.nullcontext():
                    _warm_up(servable, path, max(1, self.options.num_request_iterations_for_warmup))
        except BaseException:
            model.close()
            raise
        return servable


def _saved_models(needed_by: str) -> ModuleType:
    try:
        start_tensorflow()
        return importlib.import_module("serving.model_server.versions.saved_model")
    except ModuleNotFoundError as error:
        message = f"{needed_by} needs TensorFlow, which is not installed here: install albert-tf, or export for LiteRT"
        raise StatusError(StatusCode.FAILED_PRECONDITION, message) from error


def _raise_failed(failed: list[Version], noun: str) -> None:
    if failed:
        errors = "".join(f"{{{version} due to error: {version.error}}}, " for version in failed)
        raise StatusError(StatusCode.UNKNOWN, f"{len(failed)} {noun} did not become available: {{{errors}}}")


def _warm_up(servable: Servable, path: str, iterations: int) -> None:
    """Replays the records of VERSION/assets.extra/tf_serving_warmup_requests, if any, `iterations` times.

    The recorded model name is ignored.
    """
    file = Path(path) / _WARMUP_FILE
    if not file.is_file():
        _LOG.info("No warmup data file found at %s", file)
        return
    begin, status = time.perf_counter(), "OK"
    try:
        count = _replay(servable, file, iterations)
    except Exception as failure:
        error = as_status_error(failure)
        status = error.code.name
        raise error from failure
    finally:
        elapsed = (time.perf_counter() - begin) * 1e6
        telemetry.WARMUP_LATENCY.labels(path, status).observe(elapsed)
    telemetry.WARMUP_RECORDS_READ.labels(path).inc(count)
    _LOG.info(
        "Finished reading warmup data for model at %s. Number of warmup records read: %d. "
        "Elapsed time (microseconds): %d.",
        file,
        count,
        elapsed,
    )


def _replay(servable: Servable, file: Path, iterations: int) -> int:
    import tensorflow as tf  # Not at the top: what brings warm-up requests is a SavedModel.

    count = 0
    try:
        for count, record in enumerate(tf.data.TFRecordDataset(str(file)).as_numpy_iterator(), 1):
            if count > _MAX_WARMUP_RECORDS:
                raise invalid_argument(
                    f"Number of warmup records exceeds the maximum ({_MAX_WARMUP_RECORDS}) at {file}"
                )
            log = PredictionLog.FromString(record)
            for _ in range(iterations):
                _run_again(servable, log)
    except DecodeError as error:
        raise invalid_argument(f"Failed to parse warmup record: {record[:100]!r} from {file}") from error
    except tf.errors.DataLossError as error:
        message = f"{error.message}. Please verify your warmup data is in TFRecord format."
        raise StatusError(StatusCode.DATA_LOSS, message) from error
    return count


def _run_again(servable: Servable, log: PredictionLog) -> None:
    kind = log.WhichOneof("log_type")
    request = getattr(getattr(log, kind or "", None), "request", None)
    if kind == "predict_log":
        predict(servable, request.model_spec.signature_name, request.inputs, request.output_filter, counts=False)
    elif kind in _WARMUP_METHODS:
        infer(servable, _WARMUP_METHODS[kind], request.model_spec.signature_name, request.input)
    elif kind == "multi_inference_log":
        multi_inference(servable, request)
    else:
        raise StatusError(StatusCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")
