"""W3C trace context, if OpenTelemetry's API is installed."""

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
    """Returns the running span's `traceparent` and related headers, or ()."""
    inject = _inject()
    if inject is None:
        return ()
    headers: dict[str, str] = {}
    inject(headers)
    return tuple((name.lower(), value) for name, value in headers.items())
