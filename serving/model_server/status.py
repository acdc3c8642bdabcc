"""The server's error type."""

from grpc import StatusCode

from tfrecords.base.errors import UserError

BY_NUMBER = {code.value[0]: code for code in StatusCode}
_MAX_MESSAGE_LENGTH = 1024


class StatusError(Exception):
    """A failed request, load or start; `message` is for the client."""

    def __init__(self, code: StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    @property
    def number(self) -> int:
        return self.code.value[0]


def invalid_argument(message: str) -> StatusError:
    """Returns an INVALID_ARGUMENT error."""
    return StatusError(StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> StatusError:
    """Returns a NOT_FOUND error."""
    return StatusError(StatusCode.NOT_FOUND, message)


def as_status_error(error: BaseException) -> StatusError:
    """Converts any error to a StatusError."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, UserError):
        return invalid_argument(str(error))
    if isinstance(error, MemoryError):
        return StatusError(StatusCode.RESOURCE_EXHAUSTED, "out of memory")
    return StatusError(StatusCode.INTERNAL, f"{type(error).__name__}: {error}")


def truncated(message: str) -> str:
    """Cuts a message after 1024 characters, as grpc_status_util.cc does."""
    return message if len(message) <= _MAX_MESSAGE_LENGTH else message[:_MAX_MESSAGE_LENGTH] + "...TRUNCATED"
