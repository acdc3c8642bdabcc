"""Predict over HTTP, for benchmarks of the REST port."""

import http.client
import json
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import grpc
import numpy as np

from serving.client.messages import Arrays

# TensorFlow Serving's status of each HTTP status; those not listed are UNKNOWN.
_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class RestError(grpc.RpcError):
    """A failed HTTP request, with the interface of a gRPC error."""

    def __init__(self, code: grpc.StatusCode, details: str):
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


class RestStub:
    """Calls one URL over one open connection."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port)
        self._path = parts.path

    def connect(self) -> None:
        try:
            self._connection.connect()
        except OSError:
            self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def __call__(self, body: bytes, timeout: float) -> bytes:
        connection = self._connection
        connection.timeout = timeout
        if connection.sock:
            connection.sock.settimeout(timeout)
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except TimeoutError:
            connection.close()
            raise RestError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RestError(grpc.StatusCode.UNAVAILABLE, _reason(error)) from None
        if response.status != http.client.OK:
            raise RestError(_STATUS.get(response.status, grpc.StatusCode.UNKNOWN), _message(response.status, answer))
        return answer


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _message(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return f"HTTP {status}: {body.decode(errors='replace')}"


def predict_url(target: str, rest_api_port: int, model: str, version: int = 0, label: str = "") -> str:
    """Returns the predict URL of a model, version or label."""
    which = f"/versions/{version}" if version else f"/labels/{quote(label, safe='')}" if label else ""
    return f"{server_url(target, rest_api_port)}/v1/models/{quote(model, safe='')}{which}:predict"


def server_url(target: str, rest_api_port: int) -> str:
    """Returns the REST port's URL."""
    host = "127.0.0.1" if target.startswith("unix:") else target.rsplit(":", 1)[0]
    return f"http://{host}:{rest_api_port}"


def request_body(inputs: Mapping[str, np.ndarray], signature: str) -> bytes:
    """Returns a request's JSON in column format."""
    columns = {name: _plain(array) for name, array in inputs.items()}
    return json.dumps({"signature_name": signature, "inputs": columns}).encode()


def _plain(array: np.ndarray) -> list:
    # Strictly: `messages.plain` would send another text in place of bytes that are no UTF-8.
    return (np.vectorize(bytes.decode, otypes=[object])(array) if array.dtype.hasobject else array).tolist()


def read_answer(body: bytes) -> Arrays:
    """Returns the outputs of an answer in column format; raises ValueError for other bodies."""
    answer = json.loads(body)
    if not isinstance(answer, dict) or "outputs" not in answer:
        raise ValueError("no outputs in the answer")
    outputs = answer["outputs"] if isinstance(answer["outputs"], dict) else {"outputs": answer["outputs"]}
    return {name: _array(value) for name, value in sorted(outputs.items())}


def _array(value: object) -> np.ndarray:
    array = np.asarray(value)
    return array if array.dtype.kind in "bif" else np.asarray(value, dtype=object)
