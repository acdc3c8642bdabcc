import logging
import time
from pathlib import Path

from google.protobuf.message import DecodeError
from grpc import StatusCode

from serving.model_server import telemetry
from serving.model_server.prediction import CLASSIFY, REGRESS, infer, multi_inference, predict
from serving.model_server.status import StatusError, as_status_error, invalid_argument
from serving.model_server.versions.servable import Servable
from serving.wire.protos import PredictionLog

_LOG = logging.getLogger(__name__)
_FILE = "assets.extra/tf_serving_warmup_requests"
_MAX_RECORDS = 1000
_METHODS = {"classify_log": CLASSIFY, "regress_log": REGRESS}


def warm_up(servable: Servable, path: str, iterations: int = 1) -> None:
    """Replays the records of VERSION/assets.extra/tf_serving_warmup_requests, if any, `iterations` times.

    The recorded model name is ignored.
    """
    file = Path(path) / _FILE
    if not file.is_file():
        _LOG.info("No warmup data file found at %s", file)
        return
    begin = time.perf_counter()
    status = "OK"
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
            if count > _MAX_RECORDS:
                raise invalid_argument(f"Number of warmup records exceeds the maximum ({_MAX_RECORDS}) at {file}")
            log = PredictionLog.FromString(record)
            for _ in range(iterations):
                _run(servable, log)
    except DecodeError as error:
        raise invalid_argument(f"Failed to parse warmup record: {record[:100]!r} from {file}") from error
    except tf.errors.DataLossError as error:
        message = f"{error.message}. Please verify your warmup data is in TFRecord format."
        raise StatusError(StatusCode.DATA_LOSS, message) from error
    return count


def _run(servable: Servable, log: PredictionLog) -> None:
    kind = log.WhichOneof("log_type")
    request = getattr(getattr(log, kind or "", None), "request", None)
    if kind == "predict_log":
        predict(servable, request.model_spec.signature_name, request.inputs, request.output_filter, counts=False)
    elif kind in _METHODS:
        infer(servable, _METHODS[kind], request.model_spec.signature_name, request.input)
    elif kind == "multi_inference_log":
        multi_inference(servable, request)
    else:
        raise StatusError(StatusCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")
