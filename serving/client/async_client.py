"""The asyncio client: the blocking one's methods, awaited."""

from collections.abc import Mapping, Sequence

import grpc

from serving.client import messages
from serving.client.channel import Connection
from serving.client.client import ClientBase
from serving.client.errors import ServingError
from serving.client.messages import Arrays
from serving.client.signatures import Signature, VersionStatus, read_metadata, read_status


class AsyncClient(ClientBase):
    """Calls one model from an event loop; arguments, answers and errors are those of `Client`.

    async with AsyncClient("127.0.0.1:8500", "sst2") as client:
        answers = await asyncio.gather(*[client.predict_text([text]) for text in texts])
    """

    def __init__(self, target: str | Connection, model: str, **settings):
        super().__init__(target, model, **settings)
        self._channel = self.connection.open_async()
        self._stubs(self._channel)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, stub, request, timeout_s: float | None = None):
        try:
            return await stub(request, timeout=self.timeout_s if timeout_s is None else timeout_s)
        except grpc.RpcError as error:
            raise ServingError.of(error, self.connection.target) from None

    async def predict(
        self, inputs: Mapping[str, object], *, outputs: Sequence[str] = (), timeout_s: float | None = None
    ) -> Arrays:
        return messages.read_prediction(await self._call(self._predict, self.request(inputs, outputs), timeout_s))

    async def signature(self) -> Signature:
        return self._signature or self._choose_signature(await self.metadata())

    async def metadata(self) -> dict[str, Signature]:
        return read_metadata(await self._call(self._metadata, self._metadata_request()))[1]

    async def served_version(self, *, timeout_s: float | None = None) -> int:
        return read_metadata(await self._call(self._metadata, self._metadata_request(), timeout_s))[0]

    async def status(self) -> list[VersionStatus]:
        return read_status(await self._call(self._status, self._status_request()))

    async def predict_ids(
        self,
        rows: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        *,
        batch_size: int | None = None,
        length_buckets: Sequence[int] = (),
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        numbers, calls = self._split_ids(await self.signature(), rows, segments, batch_size, length_buckets)
        parts = [await self.predict(inputs, outputs=outputs, timeout_s=timeout_s) for inputs in calls]
        return messages.join_batches(parts, numbers)

    async def predict_text(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        numbers, calls = self._split_text(await self.signature(), texts, batch_size)
        parts = [await self.predict(inputs, outputs=outputs, timeout_s=timeout_s) for inputs in calls]
        return messages.join_batches(parts, numbers)
