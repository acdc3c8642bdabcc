"""The methods of both clients as generators of steps.

A step yields a stub, its message and its time limit, and receives the answer or a ServingError.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.message import Message

from serving.client import messages, tasks
from serving.client.channel import Connection
from serving.client.errors import ServingError
from serving.client.messages import Arrays, Signature, VersionStatus, read_metadata, read_status
from serving.wire import protos
from serving.wire.tensors import Value, as_array
from tfrecords.base.errors import UserError

Result = TypeVar("Result")
# What is called, with which message, for how many seconds at most (None: the client's own); sent the answer.
Steps = Generator[tuple[Callable, Message, float | None], Any, Result]
# Of a request in parts: how often a part is sent again where a server does not have the version that answered the first
# one, since calls go in turn to all servers of a name; and how often all parts are, by another version.
_MOST_REPEATS, _MOST_RESTARTS = 3, 3


class ClientBase:
    """Calls one model of a server; a client's method NAME runs `_NAME_steps`."""

    def __init__(
        self,
        target: str | Connection,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "serving_default",
        timeout_s: float = 30.0,
        max_batch_rows: int | None = None,
    ):
        """Sets the model and how to call it.

        Args:
            target: HOST:PORT, or a Connection for TLS, compression and retries.
            model: its name.
            version: None for the newest.
            label: a version label instead of a version.
            signature: to call.
            timeout_s: seconds per call, retries included.
            max_batch_rows: larger requests are split. None: the limit that the server states when it refuses one.

        Raises:
            UserError: `max_batch_rows` is below 1.
        """
        if max_batch_rows is not None and max_batch_rows < 1:
            raise UserError(f"max_batch_rows is {max_batch_rows}; it must be at least 1")
        self.connection = target if isinstance(target, Connection) else Connection(target)
        self.model, self.version, self.label = model, version, label
        self.signature_name, self.timeout_s, self.max_batch_rows = signature, timeout_s, max_batch_rows
        self._signature: Signature | None = None
        self._tasks: dict[str, tasks.RowsTask] = {}

    def _stubs(self, channel: grpc.Channel) -> None:
        def stub(method: str, request_type: Any, response_type: Any) -> Callable:
            return channel.unary_unary(method, request_type.SerializeToString, response_type.FromString)

        self._predict = stub(protos.PREDICT, protos.PredictRequest, protos.PredictResponse)
        self._metadata = stub(
            protos.GET_MODEL_METADATA, protos.GetModelMetadataRequest, protos.GetModelMetadataResponse
        )
        self._status = stub(protos.GET_MODEL_STATUS, protos.GetModelStatusRequest, protos.GetModelStatusResponse)

    def request(
        self, inputs: Mapping[str, Value], outputs: Sequence[str] = (), signature: str | None = None
    ) -> protos.PredictRequest:
        return messages.predict_request(
            inputs, self.model, self.version, self.label, signature or self.signature_name, outputs
        )

    def _predict_steps(
        self,
        inputs: Mapping[str, Value],
        *,
        outputs: Sequence[str] = (),
        signature: str | None = None,
        timeout_s: float | None = None,
    ) -> Steps[Arrays]:
        """Returns the output arrays by name for `inputs` by name (arrays, lists, scalars, str as UTF-8).

        Too many rows are sent in several requests, to one version.

        `outputs`: names to compute, empty for all. `timeout_s` limits the whole call.
        """
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        arrays = {name: as_array(value) for name, value in inputs.items()}
        rows = messages.count_rows(arrays)
        if rows is None or self.max_batch_rows is None or rows <= self.max_batch_rows:
            try:
                request = self.request(arrays, outputs, signature)
                return messages.read_prediction((yield self._predict, request, timeout_s))
            except ServingError as error:
                if rows is None or not self._takes_fewer_rows(error, rows):
                    raise
        return (yield from self._parts_steps(arrays, rows, outputs, signature, end))

    def _parts_steps(
        self, arrays: Arrays, rows: int, outputs: Sequence[str], signature: str | None, end: float
    ) -> Steps[Arrays]:
        parts: list[Arrays] = []
        numbers: list[np.ndarray] = []
        done, version, repeats, restarts = 0, self.version, 0, 0
        while done < rows:
            some = np.arange(done, min(done + (self.max_batch_rows or rows), rows))
            request = messages.predict_request(
                {name: array[done : done + len(some)] for name, array in arrays.items()},
                self.model,
                version,
                self.label if version is None else None,
                signature or self.signature_name,
                outputs,
            )
            try:
                response = yield self._predict, request, max(end - time.monotonic(), 0.001)
            except ServingError as error:
                if self._takes_fewer_rows(error, len(some)):
                    continue
                if error.code is not grpc.StatusCode.NOT_FOUND or not parts:
                    raise
                if repeats < _MOST_REPEATS:
                    repeats += 1
                    continue
                if restarts == _MOST_RESTARTS:
                    raise
                # The version that answered the first parts was unloaded.
                parts, numbers = [], []
                done, version, repeats, restarts = 0, self.version, 0, restarts + 1
                continue
            if response.model_spec.HasField("version"):
                version = response.model_spec.version.value
            parts.append(messages.read_prediction(response))
            numbers.append(some)
            done, repeats = done + len(some), 0
        return messages.join_batches(parts, numbers)

    def _takes_fewer_rows(self, error: ServingError, rows: int) -> bool:
        limit = error.max_rows
        if not limit or limit >= rows:
            return False
        self.max_batch_rows = min(limit, self.max_batch_rows or limit)
        return True

    def _described_steps(self, timeout_s: float | None = None) -> Steps[tuple[int, dict[str, Signature]]]:
        request = protos.GetModelMetadataRequest(metadata_field=["signature_def"])
        messages.fill_model_spec(request.model_spec, self.model, self.version, self.label)
        return read_metadata((yield self._metadata, request, timeout_s))

    def _metadata_steps(self) -> Steps[dict[str, Signature]]:
        """Returns the model's signatures by name."""
        return (yield from self._described_steps())[1]

    def _served_version_steps(self, *, timeout_s: float | None = None) -> Steps[int]:
        """Returns the version that answers now."""
        return (yield from self._described_steps(timeout_s))[0]

    def _status_steps(self) -> Steps[list[VersionStatus]]:
        """Returns the model's versions, newest first, including ended and failed ones."""
        request = protos.GetModelStatusRequest()
        # Without a version the server lists them all; labels it ignores here.
        messages.fill_model_spec(request.model_spec, self.model, self.version)
        return read_status((yield self._status, request, None))

    def _signature_steps(self) -> Steps[Signature]:
        """Returns the inputs and outputs of the client's signature; asks the server once."""
        if self._signature is None:
            signatures = yield from self._metadata_steps()
            if self.signature_name not in signatures:
                raise UserError(
                    f"model '{self.model}' has no signature '{self.signature_name}'; it has {', '.join(signatures)}"
                )
            self._signature = signatures[self.signature_name]
        return self._signature

    def _predict_ids_steps(
        self,
        rows: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        *,
        batch_size: int | None = None,
        length_buckets: Sequence[int] = (),
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Steps[Arrays]:
        """Returns the answers to rows of token ids of any lengths, in order.

        Args:
            rows: token ids.
            segments: segment ids of each row, by default 0.
            batch_size: rows per call, of similar length; None: all.
            length_buckets: lengths to pad to; empty: the longest row's.
            outputs: to compute, empty for all.
            timeout_s: seconds per call.
        """
        signature = yield from self._signature_steps()
        numbers = list(messages.batches([len(row) for row in rows], batch_size))
        calls = []
        for batch in numbers:
            batch_segments = None if segments is None else [segments[i] for i in batch]
            calls.append(messages.ids_inputs(signature, [rows[i] for i in batch], batch_segments, length_buckets))
        return (yield from self._joined_steps(numbers, calls, outputs, None, timeout_s))

    def _predict_text_steps(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Steps[Arrays]:
        """Returns the answers to texts, in order; arguments are those of `predict_ids`."""
        signature = yield from self._signature_steps()
        tasks.check_texts(texts)
        numbers = list(messages.batches([len(text) for text in texts], batch_size))
        calls = [messages.text_inputs(signature, [texts[i] for i in batch]) for batch in numbers]
        return (yield from self._joined_steps(numbers, calls, outputs, None, timeout_s))

    def _joined_steps(
        self,
        numbers: Sequence[np.ndarray],
        calls: Sequence[Mapping[str, Value]],
        outputs: Sequence[str],
        signature: str | None,
        timeout_s: float | None,
    ) -> Steps[Arrays]:
        parts = []
        for inputs in calls:
            answer = self._predict_steps(inputs, outputs=outputs, signature=signature, timeout_s=timeout_s)
            parts.append((yield from answer))
        return messages.join_batches(parts, numbers)

    def _embed_steps(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str = "",
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Steps[np.ndarray]:
        """Returns vectors of texts, float32 [texts, size], in order.

        Args:
            texts: any number.
            prompt_name: of the exported prompt before each text; "": the default prompt.
            truncate_left: cuts too long texts at their beginning.
            max_batch_tokens: per call, estimated; texts of similar length share a call.
            timeout_s: seconds per call.

        Raises:
            UserError: the model does not embed single texts, or lacks an option.
        """
        task, answer = yield from self._task_steps(
            "embed", texts, max_batch_tokens, timeout_s, prompt_name=prompt_name, truncate_left=truncate_left
        )
        return tasks.vectors_of(task, answer)

    def _rerank_steps(
        self,
        query: str,
        texts: Sequence[str],
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Steps[np.ndarray]:
        """Returns how well each text answers the query, float32 [texts] from 0 to 1, in order; for models of pairs.

        The score is a two-class classifier's probability of class 1, or the logistic function of a regressor's value.
        Other arguments are those of `embed`.
        """
        pairs = [(query, text) for text in tasks.check_texts(texts)]
        _, answer = yield from self._task_steps(
            "rerank", pairs, max_batch_tokens, timeout_s, truncate_left=truncate_left
        )
        return tasks.relevance(tasks.raw_scores(answer))

    def _classify_steps(
        self,
        texts: Sequence,
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Steps[Arrays]:
        """Returns `label`, `logits` and `probabilities` of texts (a regressor's `value`), in order.

        For a model of pairs, `texts` is a list of (first, second). Other arguments are those of `embed`.
        """
        steps = self._task_steps("classify", texts, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        return (yield from steps)[1]

    def _task_steps(
        self, kind: str, rows: Sequence, max_batch_tokens: int, timeout_s: float | None, **options: str | bool
    ) -> Steps[tuple[tasks.RowsTask, Arrays]]:
        task = self._tasks.get(kind) or self._find_task(kind, (yield from self._metadata_steps()))
        encoded = tasks.encode_rows(rows, len(task.inputs))
        sizes = [tasks.estimated_tokens(row) for row in encoded]
        numbers = list(messages.token_batches(sizes, max_batch_tokens))
        asked = task.asked_with(**options)
        calls = [asked.columns([encoded[i] for i in batch]) for batch in numbers]
        return task, (yield from self._joined_steps(numbers, calls, task.outputs, asked.signature, timeout_s))

    def _find_task(self, kind: str, signatures: dict[str, Signature]) -> tasks.RowsTask:
        task = tasks.find_tasks(signatures).get(kind)
        if task is None:
            raise UserError(f"model '{self.model}' gives no {_GIVEN[kind]}; its signatures are {', '.join(signatures)}")
        return self._tasks.setdefault(kind, task)


# The message for a model without the task of a method.
_GIVEN = {"embed": "embedding of a text", "rerank": "score of pairs", "classify": "class of a text"}
