"""Errors that clients of the gateway see."""

import grpc

from serving.client import ServingError
from serving.client.errors import UnreadableAnswer
from serving.http_protocol import RETRY_S, Refusal
from tfrecords.base.errors import first_line

# The code while a model is being read.
NOT_READY = "not_ready"
_TOO_BUSY = grpc.StatusCode.RESOURCE_EXHAUSTED
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.CANCELLED)
_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)


def bad_request(message: str) -> Refusal:
    """Returns the error of an invalid request."""
    return Refusal(400, message)


def from_server(error: ServingError | UnreadableAnswer) -> Refusal:
    """Converts a server's error to a Refusal, without internal addresses."""
    if isinstance(error, UnreadableAnswer):
        return Refusal(502, f"the model server's answer cannot be used: {first_line(error)}"[:500], "server_error")
    if error.is_too_large:
        message = "the request or its answer is over the model server's limit of a message; send fewer or shorter texts"
        return Refusal(413, message, "too_large")
    if error.code is _TOO_BUSY or error.is_of_full_queue:
        return Refusal(429, "the model server has too much to do", "overloaded", RETRY_S)
    if error.code in _GONE:
        return gone()
    if error.code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Refusal(504, "the model took longer than the time limit", "timeout")
    if error.code in _REFUSED:
        # TensorFlow adds the names of the graph's nodes.
        details = error.details.partition("[[{{")[0]
        return bad_request(f"the model refused the request: {' '.join(details.split())[:300]}")
    return Refusal(502, f"the model server failed ({error.code.name})", "server_error")


def is_busy(error: ServingError) -> bool:
    """Returns whether the server is there and has too much to do."""
    return error.is_of_full_queue or error.code in (_TOO_BUSY, grpc.StatusCode.DEADLINE_EXCEEDED)


def gone() -> Refusal:
    """Returns the error while no model server is available."""
    return Refusal(503, "the model server does not answer at present", "unavailable", RETRY_S)


def not_ready(name: str) -> Refusal:
    """Returns the error until the model's tasks are known."""
    message = f"not ready yet: the gateway is still reading what the model '{name}' can do"
    return Refusal(503, message, NOT_READY, RETRY_S)


def unreadable(name: str, error: Exception) -> Refusal:
    """Returns the error for a model's unreadable signatures."""
    if isinstance(error, ServingError) and error.code is grpc.StatusCode.NOT_FOUND:
        return Refusal(404, f"the model server has not loaded the model '{name}'", "model_not_found")
    if isinstance(error, ServingError) and error.code not in _REFUSED:
        return gone()
    message = f"the gateway could not read what the model '{name}' can do; its log says why"
    return Refusal(503, message, "unavailable", RETRY_S)
