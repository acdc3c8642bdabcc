"""Spans of a request, and the W3C context that reaches the model server."""

import re

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serving.client import Client
from tests.serving.gateway.conftest import wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture(scope="module")
def exporter():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_request_is_a_span_and_its_batch_a_span_in_it(exporter, fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target)
    exporter.clear()
    asked = len(model.metadata)
    assert gateway.http.post("/embed", json={"inputs": "a"}, headers=PARENT).status_code == 200
    wait_until(lambda: len(exporter.get_finished_spans()) == 2)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, batch = spans["POST /embed"], spans["batch"]
    assert {f"{span.context.trace_id:032x}" for span in (request, batch)} == {TRACE}
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    assert batch.parent.span_id == request.context.span_id and batch.attributes["rows"] == 1
    sent = [one["traceparent"] for one in model.metadata[asked:] if "traceparent" in one]
    assert sent and set(sent) == {f"00-{TRACE}-{batch.context.span_id:016x}-01"}


def test_the_client_sends_the_context_of_the_running_span(exporter, fake_server):
    model, stand_in = fake_server("embedder")
    with Client(stand_in.target, "default") as client:
        client.embed(["a"])
        assert "traceparent" not in model.metadata[-1]
        with trace.get_tracer("test").start_as_current_span("outer") as span:
            client.embed(["a"])
    sent = re.fullmatch(r"00-(\w{32})-(\w{16})-0\d", model.metadata[-1]["traceparent"])
    assert sent[1] == f"{span.get_span_context().trace_id:032x}"
