"""Converts exportable models to LiteRT (TensorFlow Lite) files with that runtime's own operations."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flatbuffers
import keras
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import flexbuffers
from tensorflow.core.protobuf import meta_graph_pb2

from albert_tf.base import Tensor
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import setting_of
from albert_tf.layers.block import MASKED_SCORE, Attention, Step, product_score
from serving.exportable import PREDICT, Exportable, ExportOptions, make_exportable
from serving.exportable.inputs import specs
from serving.inference import InferenceEncoder, InferenceOptions
from serving.inference.rows import BatchRows, attend_from_first
from serving.lite.description import TensorSpec
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import TokenBatch

DEFAULT_SIGNATURE = "serving_default"
# Of the longest row, at once: 256 MB.
MOST_SCORES = 2**26


class Rectangle(BatchRows):
    """A padded batch with full attention, in LiteRT's own ops."""

    batch: Any

    def __init__(self, batch: Any, config: AlbertConfig, attention: Attention):
        heads = range(1, config.num_attention_heads + 1)
        # Other scores have weights of their own for each head.
        if attention.score is product_score:
            scores = config.num_attention_heads * config.max_seq_length**2
            turns = (one for one in heads if not heads[-1] % one and scores / one <= MOST_SCORES)
            attention = dataclasses.replace(attention, turns=next(turns, heads[-1]))
        super().__init__(batch, config, attention)

    def token_positions(self) -> Tensor:
        return tf.expand_dims(tf.range(self.batch.length), 0)

    def of_batch(self, values: Tensor) -> Tensor:
        return values

    def attend(self, projected: Tensor, step: Step) -> Tensor:
        heads, size = self.config.num_attention_heads, self.config.head_size
        by_head = self.batch.reshape(projected, 3 * heads, size)
        query, key, value = tf.split(tf.transpose(by_head, [0, 2, 1, 3]), 3, axis=1)
        contexts = attend_from_first(self, self.batch.bias, query, key, value, step)
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return self.rectangle(hidden)[:, 0]


class PaddedBatch:
    """Replaces FlatBatch, and computes padding; `mask` is bool [batch, length], and `shape` its shape."""

    def __init__(self, mask: Tensor, shape: Tensor):
        self.mask, self.shape, self.length = mask, shape, shape[1]
        self.computed = None
        # Of two unknown sizes, LiteRT has no x[:, tf.newaxis].
        self.bias = tf.expand_dims(tf.expand_dims(tf.where(mask, 0.0, MASKED_SCORE), 1), 1)

    def restore(self, of_rows: Tensor) -> Tensor:
        return of_rows

    def rectangle(self, hidden: Tensor) -> Tensor:
        return self.reshape(hidden, *hidden.shape[1:])

    def reshape(self, of_tokens: Tensor, *width: int) -> Tensor:
        # Sizes that are joined so LiteRT knows before it computes, and then one memory serves several tensors.
        return tf.reshape(of_tokens, tf.concat([self.shape, width], 0))


class LiteRtEncoder(InferenceEncoder):
    """The encoder of LiteRT files: float32, and padding is computed too."""

    for_litert, rows_class, takes_texts = True, Rectangle, False

    def _by_size(self, answer: Callable, *inputs):
        return answer(*self._begin(*inputs))

    def _batch(self, input_ids, lengths, input_mask, *others) -> PaddedBatch:
        return PaddedBatch(tf.cast(input_mask, tf.bool), tf.shape(input_ids))


def check_model(model: keras.Model) -> None:
    """Raises UserError if LiteRT has no operations for an extension of the model."""
    config = encoder_of(model).config
    for extension in config.extensions:
        if not extension.for_litert:
            raise UserError(f"{setting_of(config, extension)} is not written for LiteRT; leave out --engine=litert")


def lite_exportable(model: keras.Model, options: ExportOptions) -> Exportable:
    """Returns an exportable of a model that `check_model` accepts, for `convert`."""
    return make_exportable(model, options, LiteRtEncoder(encoder_of(model), InferenceOptions()))


def convert(exportable: Exportable, compute: str = "float32") -> tuple[bytes, dict[str, TensorSpec]]:
    """Returns a LiteRT file and its outputs. Its inputs are those of `input_specs`.

    `compute` is "float32", or "int8": weights in 8 bits, activations quantized in each call.
    """
    inputs = input_specs(exportable)

    def answer(input_ids, lengths, segment_ids=None, **more):
        positions = tf.range(tf.shape(input_ids)[1])
        # Each row's first token always counts.
        mask = tf.cast((positions < tf.expand_dims(lengths, 1)) | (positions == 0), tf.int32)
        segments = tf.zeros_like(input_ids) if segment_ids is None else segment_ids
        return exportable.lite_answer(TokenBatch(input_ids, mask, segments), **more)

    function = tf.function(answer, autograph=False).get_concrete_function(**inputs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], exportable)
    if compute == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    content = converter.convert()
    outputs = {name: described(value) for name, value in function.structured_outputs.items()}
    return with_signatures(content, _signatures(exportable, content)), outputs


def input_specs(exportable: Exportable) -> dict[str, tf.TensorSpec]:
    """Returns a file's inputs: rows of ids, their lengths, perhaps their segments, and those of the head."""
    rows = ("input_ids", "segment_ids") if exportable.lite_takes_pairs else ("input_ids",)
    of_tokens = specs(*rows, dtype=tf.int32, shape=(None, None))
    return of_tokens | specs("lengths", dtype=tf.int32) | exportable.lite_inputs


def _signatures(exportable: Exportable, content: bytes) -> dict[str, bytes]:
    runner = Interpreter(model_content=content).get_signature_runner()
    inputs, outputs = _infos(runner.get_input_details()), _infos(runner.get_output_details())
    names = exportable.lite_signatures or {DEFAULT_SIGNATURE: tuple(outputs)}
    # All have all inputs: what a request leaves out, TensorFlow Serving takes from the request before.
    return {
        name: meta_graph_pb2.SignatureDef(
            inputs=inputs, outputs={one: outputs[one] for one in of_signature}, method_name=PREDICT
        ).SerializeToString()
        for name, of_signature in names.items()
    }


def _infos(details: dict[str, dict[str, Any]]) -> dict[str, meta_graph_pb2.TensorInfo]:
    infos = {}
    for name, detail in details.items():
        info = infos[name] = meta_graph_pb2.TensorInfo(name=detail["name"])
        info.dtype = tf.as_dtype(detail["dtype"]).as_datatype_enum
        for size in detail["shape_signature"].tolist():
            info.tensor_shape.dim.add(size=size)
    return infos


def described(tensor: tf.TensorSpec) -> TensorSpec:
    """Returns the type and shape of a file's input or output."""
    return TensorSpec(tensor.dtype.name, tuple(-1 if size is None else size for size in tensor.shape))


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
