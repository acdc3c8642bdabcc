"""Model servers without a model that answer, wait and fail by the number of the call."""

import contextlib
import http.server
import itertools
import threading
import time

import pytest

from tests.stand_in import constant_answer

ANSWER = constant_answer()


class Numbered:
    """After `seconds` answers what `answer(number of the call, context)` gives, or ANSWER where it gives nothing."""

    def __init__(self, answer=lambda number, context: None, seconds=0.0):
        self._answer, self._seconds, self._numbers, self.calls = answer, seconds, itertools.count(1), 0

    def __call__(self, request, context):
        self.calls = number = next(self._numbers)
        time.sleep(self._seconds)
        return self._answer(number, context) or ANSWER


class Web(http.server.ThreadingHTTPServer):
    """Answers by its `replies` in turn, the last one for ever, and notes requests and connections.

    A reply: a status and a body, or None and the seconds until it hangs up; then the length to announce, if another.
    """

    daemon_threads = True

    def __init__(self, *replies):
        self.replies, self.bodies, self.paths, self.connections = list(replies), [], [], 0
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_POST(self):
        self.server.paths.append(self.path)
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        replies = self.server.replies
        status, body, *length = replies.pop(0) if len(replies) > 1 else replies[0]
        if status is None:
            time.sleep(body)
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(*length or [len(body)]))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = bool(length)

    do_GET = do_POST

    def log_message(self, *arguments):
        pass


@pytest.fixture
def web():
    """web(*replies): a Web."""
    with contextlib.ExitStack() as stack:

        def make(*replies):
            server = stack.enter_context(Web(*replies))
            stack.callback(server.shutdown)
            return server

        yield make
