"""HTTP for the REST API: uvicorn on its own thread."""

import asyncio
import contextlib
import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from grpc import StatusCode

from serving.http_protocol import LongBody, listen, make_server, read_body
from serving.model_server.rest import json_response
from serving.model_server.rest.api import LARGE_BODY_BYTES, Response, RestApi, too_large
from serving.model_server.status import StatusError


class RestServer:
    """An HTTP server for `api`: opens its port at once, answers after start()."""

    def __init__(self, api: RestApi, address: str, port: int, threads: int):
        self._api = api
        # Large bodies wait for one another in RestApi; small ones must not wait with them.
        self._pools = ThreadPoolExecutor(threads, "rest"), ThreadPoolExecutor(threads, "rest-large")
        self._receiving: set[asyncio.Task] = set()
        try:
            self._socket = listen(address, port)
        except OSError as error:
            raise StatusError(StatusCode.UNAVAILABLE, f"Cannot listen on {address}:{port}: {error.strerror}") from error
        self._server = make_server(self._application, "off")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="rest-server")

    def start(self) -> None:
        self._thread.start()

    def refuse_new(self, grace: float | None = None) -> None:
        """Refuses new connections; cuts off running requests after `grace` seconds (None = never)."""
        self._server.config.timeout_graceful_shutdown = grace
        self._server.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._stop_receiving)

    def stop(self, grace: float | None = None) -> None:
        self.refuse_new(grace)
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        for pool in self._pools:
            pool.shutdown(wait=grace is None, cancel_futures=True)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._server.serve([self._socket]))

    def _stop_receiving(self) -> None:
        for task in self._receiving:
            task.cancel()

    async def _application(self, scope, receive, send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except ConnectionError:
            return
        fields = {**answer.headers, "Content-Length": str(len(answer.body))}
        headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope, receive) -> Response:
        if self._server.should_exit:
            return _stopping()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        task = asyncio.current_task()
        self._receiving.add(task)
        try:
            body = await read_body(receive, int(headers.get("content-length", 0)), self._api.max_body_bytes)
        except LongBody:
            return too_large(self._api.max_body_bytes)
        except TimeoutError:
            return Response(408, headers={"Connection": "close"})
        except asyncio.CancelledError:
            return _stopping()
        finally:
            self._receiving.discard(task)
        path = scope["raw_path"].decode("latin-1") + ("?" if scope["query_string"] else "")
        pool = self._pools[len(body) >= LARGE_BODY_BYTES]
        call = functools.partial(self._api.answer, scope["method"], path, headers, body, time.monotonic())
        return await asyncio.get_running_loop().run_in_executor(pool, call)


def _stopping() -> Response:
    headers = {"Content-Type": "application/json", "Connection": "close"}
    return Response(503, json_response.error("the server is stopping"), headers)
