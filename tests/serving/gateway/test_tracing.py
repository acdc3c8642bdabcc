"""Spans of OpenTelemetry's own instrumentation: a request's, and within it that of its call to the model server."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serving.gateway import app
from tests.serving.gateway.conftest import wait_until

grpc = pytest.importorskip("opentelemetry.instrumentation.grpc")
starlette = pytest.importorskip("opentelemetry.instrumentation.starlette")
TRACES = ["0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d"]


@pytest.fixture(scope="module")
def exporter():
    exporter, patch = InMemorySpanExporter(), pytest.MonkeyPatch()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tools = [starlette.StarletteInstrumentor(), grpc.GrpcAioInstrumentorClient()]
    for one in tools:
        one.instrument()
    # `opentelemetry-instrument` does so before the module is imported.
    patch.setattr(app, "Starlette", starlette.applications.Starlette)
    yield exporter
    patch.undo()
    for one in tools:
        one.uninstrument()


def test_a_call_to_the_server_is_within_the_request_that_it_answers(exporter, fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target)
    for one in TRACES:
        asked = len(model.metadata)
        exporter.clear()
        parent = {"traceparent": f"00-{one}-b7ad6b7169203331-01"}
        assert gateway.http.post("/embed", json={"inputs": one}, headers=parent).status_code == 200
        wait_until(lambda: any("POST" in span.name for span in exporter.get_finished_spans()))
        spans = [span for span in exporter.get_finished_spans() if f"{span.context.trace_id:032x}" == one]
        assert any(span.name.endswith("Predict") for span in spans) and any("POST" in span.name for span in spans)
        sent = [one["traceparent"] for one in model.metadata[asked:] if "traceparent" in one]
        assert {one.split("-")[1] for one in sent} >= {one}
