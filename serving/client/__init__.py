"""A client for TensorFlow Serving with NumPy arrays; imports no TensorFlow."""

from serving.client.channel import Connection
from serving.client.client import AsyncClient, Client
from serving.client.errors import ServingError
from serving.client.messages import Signature, TensorSpec, VersionStatus
from serving.wire.request_id import request_id

__all__ = [
    "AsyncClient",
    "Client",
    "Connection",
    "ServingError",
    "Signature",
    "TensorSpec",
    "VersionStatus",
    "request_id",
]
