"""A light client for TensorFlow Serving: numpy in and out, no TensorFlow import."""

from serving.client.async_client import AsyncClient
from serving.client.channel import Connection
from serving.client.client import Client
from serving.client.errors import ServingError
from serving.client.signatures import Signature, TensorSpec, VersionStatus

__all__ = ["AsyncClient", "Client", "Connection", "ServingError", "Signature", "TensorSpec", "VersionStatus"]
