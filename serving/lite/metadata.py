"""Reads the signatures that a LiteRT file's metadata has for TensorFlow Serving."""

import struct

from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

NAME = b"signature_defs_metadata"


def stored_signatures(content: bytes) -> dict[str, bytes]:
    """Returns serialized SignatureDefs by name; {} if the file has none.

    Raises ValueError for metadata that is no map of messages.
    """
    try:
        model = schema.Model.GetRootAs(content, 0)
        entries = [model.Metadata(index) for index in range(model.MetadataLength())]
        buffers = [model.Buffers(entry.Buffer()) for entry in entries if entry.Name() == NAME]
        if not buffers:
            return {}
        stored = flexbuffers.GetRoot(buffers[0].DataAsNumpy().tobytes()).AsMap
        # As the real server reads it: up to the first byte 0.
        values = [bytes(value.AsStringBytes).split(b"\0")[0] for value in stored.Values]
        return {key.AsKey: value for key, value in zip(stored.Keys, values, strict=True)}
    except (AttributeError, IndexError, TypeError, struct.error) as error:
        raise ValueError(str(error)) from error
