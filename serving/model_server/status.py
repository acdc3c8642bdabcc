"""One error type for the whole server: a gRPC status code and the message the client sees."""

import grpc
import tensorflow as tf

ABORTED = grpc.StatusCode.ABORTED
CANCELLED = grpc.StatusCode.CANCELLED
DATA_LOSS = grpc.StatusCode.DATA_LOSS
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED
FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
INTERNAL = grpc.StatusCode.INTERNAL
INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
UNKNOWN = grpc.StatusCode.UNKNOWN

_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_MAX_MESSAGE_LENGTH = 1024


class StatusError(Exception):
    """A request, load or start that failed.

    Attributes:
      code: grpc.StatusCode.
      message: what the client is told.
    """

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    @property
    def number(self) -> int:
        """The code as tensorflow.error.Code and google.rpc.Code number it."""
        return self.code.value[0]


def invalid_argument(message: str) -> StatusError:
    """Returns the error of a request that no server could answer."""
    return StatusError(INVALID_ARGUMENT, message)


def not_found(message: str) -> StatusError:
    """Returns the error of a request for what is not there."""
    return StatusError(NOT_FOUND, message)


def as_status_error(error: BaseException) -> StatusError:
    """Keeps the code of TensorFlow's own errors; what nobody foresaw becomes INTERNAL."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, tf.errors.OpError):
        return StatusError(_BY_NUMBER.get(error.error_code, UNKNOWN), error.message)
    if isinstance(error, MemoryError):
        return StatusError(RESOURCE_EXHAUSTED, "out of memory")
    return StatusError(INTERNAL, f"{type(error).__name__}: {error}")


def truncated(message: str) -> str:
    """Long messages break gRPC clients (they travel in a header): cut after 1024 characters (grpc_status_util.cc)."""
    return message if len(message) <= _MAX_MESSAGE_LENGTH else message[:_MAX_MESSAGE_LENGTH] + "...TRUNCATED"
