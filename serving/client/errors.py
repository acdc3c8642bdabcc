"""Errors of calls, with hints for known failures of TensorFlow Serving."""

import re

import grpc

from tfrecords.base.errors import UserError

# The words of a server that batches and whose max_batch_size is smaller: nothing else in the protocol names the limit.
_TOO_MANY_ROWS = re.compile(r"larger than maximum input batch size (\d+)")
_TOO_LARGE, _FULL_QUEUE = "message larger than max", "batch scheduling queue"
# (status, pattern in the server's message, hint); the first match is used.
HINTS = [
    ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted",
     "the server answers one request fewer at once than its --grpc_max_threads (4 x CPU cores where it is not set): "
     "start it with --grpc_max_threads above the most requests that all clients together have in flight, or send fewer "
     "at once"),
    ("RESOURCE_EXHAUSTED", _TOO_LARGE,
     "a message is over the limit of the side that refused it: send smaller batches or raise its max message length"),
    ("RESOURCE_EXHAUSTED", "timeout exceeded while waiting in batching queue",
     "the server's batching queue is too slow for this deadline: raise the timeout, or the server's num_batch_threads"),
    ("UNAVAILABLE", _FULL_QUEUE,
     "the server's batching queue is full: send fewer at once, or raise max_enqueued_batches or "
     "num_batch_threads in its batching parameters"),
    ("UNAVAILABLE", r"http1\.x|Expected SETTINGS frame|Failed parsing HTTP/2",
     "this port does not speak HTTP/2: perhaps it is the REST port; the gRPC port is 8500 by default"),
    ("UNAVAILABLE", "SSL|TLS|handshake|[Vv]erification|CERTIFICATE|certificate",
     "TLS failed: does the port speak TLS, do root_certificates vouch for the server, is server_name right?"),
    ("UNAVAILABLE", "Socket closed|Connection reset|recvmsg|GOAWAY|End of TCP stream",
     "the server closed the connection: it is stopping or restarting, or the port wants TLS"),
    ("UNAVAILABLE", "", "is the server running, and is this its gRPC port (8500 by default)?"),
    ("NOT_FOUND", "Servable not found|Could not find",
     "the server has no such model or version: check the name, and --model_name or the model config of the server"),
    ("FAILED_PRECONDITION", "Serving signature key",
     "ask for a signature the model has: `python -m serving.client --target=... --model=...` lists them"),
    ("FAILED_PRECONDITION", "padding is turned off",
     "requests of different lengths met in one batch: set pad_variable_length_inputs in the server's batching "
     "parameters"),
    ("INVALID_ARGUMENT", _TOO_MANY_ROWS.pattern,
     "the batch is over the server's max_batch_size: send smaller batches (batch_size=...)"),
    ("INVALID_ARGUMENT", "Unrecognized servable version label", "the server's model config assigns no such label"),
    ("INVALID_ARGUMENT", "input size does not match signature|Signature input alias",
     "the inputs are not the signature's: `python -m serving.client --target=... --model=...` lists what it takes"),
    ("INTERNAL", "XLA compilation disabled",
     "the model was exported with jit_compile: start the server with --xla_cpu_compilation_enabled=true"),
    ("DEADLINE_EXCEEDED", "", "the answer took longer than the timeout: raise it, send smaller batches, or look at the "
     "server's load; if the network lost the connection, a new one is made within a minute"),
    ("UNIMPLEMENTED", "", "the server at this port does not offer the service: is it a TensorFlow Serving gRPC port?"),
]  # fmt: skip


class UnreadableAnswer(UserError):
    """A server's answer that does not match its model's signature."""


class ServingError(UserError):
    """A failed call.

    Attributes:
        code: the grpc.StatusCode.
        details: the server's message.
        hint: what to change, or "".
        request_id: the call's id in the server's log; "" if unknown.
    """

    request_id = ""

    def __init__(self, code: grpc.StatusCode, details: str, hint: str, target: str):
        self.code, self.details, self.hint, self._target = code, details, hint, target
        one_line = " ".join(details.split())
        super().__init__(f"{target}: {code.name}: {one_line}" + (f" -- {hint}" if hint else ""))

    def __reduce__(self) -> tuple:
        # By default, unpickling calls the class with the message alone, which would fail and end a process pool.
        return type(self), (self.code, self.details, self.hint, self._target), {"request_id": self.request_id}

    @property
    def is_too_large(self) -> bool:
        """Whether the request or its answer is over a side's limit of a message."""
        return self.code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in self.details

    @property
    def is_of_full_queue(self) -> bool:
        """Whether the server's batching queue is full."""
        return self.code is grpc.StatusCode.UNAVAILABLE and _FULL_QUEUE in self.details

    @property
    def max_rows(self) -> int | None:
        """The server's maximum of rows, if it refused a larger request, else None."""
        found = _TOO_MANY_ROWS.search(self.details) if self.code is grpc.StatusCode.INVALID_ARGUMENT else None
        return int(found[1]) if found else None

    @classmethod
    def of(cls, error: grpc.RpcError, target: str, request_id: str = "") -> "ServingError":
        details = error.details() or ""
        made = cls(error.code(), details, hint_for(error.code(), details), target)
        made.request_id = request_id
        return made


def hint_for(code: grpc.StatusCode, details: str) -> str:
    """Returns a hint for a failed call, '' if unknown."""
    for status, pattern, hint in HINTS:
        if code.name == status and re.search(pattern, details):
            return hint
    return ""
