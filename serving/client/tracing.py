"""W3C trace context of the running OpenTelemetry span, where OpenTelemetry's API is installed."""

import functools
from collections.abc import Callable


@functools.cache
def _inject() -> Callable[[dict[str, str]], None] | None:
    try:
        from opentelemetry import propagate  # An optional dependency, imported at the first call.
    except ImportError:
        return None
    return propagate.inject


def trace_headers() -> tuple[tuple[str, str], ...]:
    """Returns `traceparent` and related headers as gRPC metadata; nothing without a span or the API."""
    inject = _inject()
    if inject is None:
        return ()
    headers: dict[str, str] = {}
    inject(headers)
    return tuple((name.lower(), value) for name, value in headers.items())
