"""Signatures of a LiteRT file for TensorFlow Serving (--prefer_tflite_model).

Its tflite_session.cc reads them from the file's metadata entry `signature_defs_metadata`: a flexbuffer's map of
serialized SignatureDefs by name.
"""

from collections.abc import Callable, Mapping

import flatbuffers
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

_NAME = "signature_defs_metadata"
# Constants of a file begin at multiples of it.
_ALIGNMENT = 16


class _Raw(bytes):
    def encode(self, encoding: str) -> bytes:
        # The builder encodes a string's argument; a serialized message is not UTF-8.
        return bytes(self)


def with_signatures(content: bytes, signatures: Mapping[str, bytes]) -> bytes:
    """Adds serialized SignatureDefs to a LiteRT file; its old bytes stay as they are, behind a new root.

    TensorFlow Serving reads a message up to its first byte 0, so that none may have one.
    """
    assert all(b"\0" not in message for message in signatures.values())
    flex = flexbuffers.Builder()
    with flex.Map():
        for name, message in sorted(signatures.items()):
            flex.Key(name)
            flex.String(_Raw(message))
    model = schema.Model.GetRootAs(content, 0)
    old = content + bytes(-len(content) % _ALIGNMENT)
    builder = flatbuffers.Builder(len(old) + 2**16)
    builder.Bytes[-len(old) :] = old
    builder.head, builder.minalign = len(builder.Bytes) - len(old), _ALIGNMENT

    # A builder counts places from the end.
    def kept(slot: int) -> int:
        place = model._tab.Offset(4 + 2 * slot)
        return len(old) - model._tab.Indirect(place + model._tab.Pos) if place else 0

    def vector(places: list[int]) -> int:
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return builder.EndVector()

    def tables(get: Callable, count: int) -> list[int]:
        return [len(old) - get(number)._tab.Pos for number in range(count)]

    data = builder.CreateByteVector(bytes(flex.Finish()))
    schema.BufferStart(builder)
    schema.BufferAddData(builder, data)
    buffers = vector([*tables(model.Buffers, model.BuffersLength()), schema.BufferEnd(builder)])
    title = builder.CreateString(_NAME)
    schema.MetadataStart(builder)
    schema.MetadataAddName(builder, title)
    schema.MetadataAddBuffer(builder, model.BuffersLength())
    entry = schema.MetadataEnd(builder)
    metadata = vector([*tables(model.Metadata, model.MetadataLength()), entry])
    schema.ModelStart(builder)
    schema.ModelAddVersion(builder, model.Version())
    # Operator codes, subgraphs, description, buffers of metadata, and signatures.
    for slot in (1, 2, 3, 5, 7):
        if kept(slot):
            builder.PrependUOffsetTRelativeSlot(slot, kept(slot), 0)
    schema.ModelAddBuffers(builder, buffers)
    schema.ModelAddMetadata(builder, metadata)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())
