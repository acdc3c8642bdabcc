"""What Keras offers for every model, and leaves to those made of several layers to get right."""

import re
from typing import Any

import keras

from albert_tf.layers.lora import has_adapters
from tfrecords.base.errors import UserError


class BaseModel(keras.Model):
    """A keras.Model whose quantization a file keeps, whose export names its inputs, and whose shapes are known.

    Attributes:
        feature_names: of the features, int32, that an export takes.
        input_rank: of each feature; the batch and the sequence have one axis each.
    """

    feature_names: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
    input_rank = 2

    @property
    def input(self) -> dict[str, keras.KerasTensor]:
        """The features as `export` names them, symbolic."""
        return {name: keras.KerasTensor((None,) * self.input_rank, "int32", name=name) for name in self.feature_names}

    @property
    def output(self):
        """What `call` returns outside training, symbolic: a tensor, or a dict of tensors."""
        shapes = self.compute_output_shape()
        if isinstance(shapes, dict):
            return {name: keras.KerasTensor(shape) for name, shape in shapes.items()}
        return keras.KerasTensor(shapes)

    def compute_output_shape(self, input_shape=None) -> tuple | dict[str, tuple]:
        """Shapes of the main outputs; None stands for a size that differs from call to call."""
        raise NotImplementedError

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs):
        """As keras.Model.export, also before any call: unless given, the signature is `input`, of any length."""
        features = {
            name: keras.InputSpec(dtype=tensor.dtype, shape=tensor.shape, name=name)
            for name, tensor in self.input.items()
        }
        signature = [features] if input_signature is None else input_signature
        return super().export(filepath, format=format, verbose=verbose, input_signature=signature, **kwargs)

    def _symbolic_build(self, iterator=None, data_batch=None):
        # Under a MirroredStrategy Keras averages a batch over the replicas to learn its shapes: ids become floats.
        if data_batch is not None:
            features, *labels = keras.utils.unpack_x_y_sample_weight(data_batch)
            named = features if isinstance(features, dict) else {"input_ids": features}
            data_batch = ({name: _whole(name, feature) for name, feature in named.items()}, *labels)
        super()._symbolic_build(iterator=iterator, data_batch=data_batch)

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """As keras.Model.quantize, of the Dense layers: embeddings and layer norms stay as they are.

        Raises:
            UserError: for a mode other than "int8", or a model with LoRA adapters.
        """
        if mode != "int8":
            raise UserError(f"quantize('{mode}') is not offered for these models; call quantize('int8')")
        if has_adapters(self):
            raise UserError("the model has LoRA adapters; call merge_lora() of its encoder before quantize")

        # Keras would warn of every other layer that it cannot be quantized.
        def wanted(layer) -> bool:
            return isinstance(layer, keras.layers.Dense) and _chosen(layer, filters)

        return super().quantize(mode, config=config, filters=wanted, **kwargs)

    def get_config(self):
        layers = [_quantization(layer) for layer in _dense_layers(self)]
        return super().get_config() | ({"quantization": layers} if any(layers) else {})

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        layers = config.pop("quantization", [])
        model = cls(**config)
        for layer, found in zip(_dense_layers(model), layers):
            # The encoder's own are by then.
            if found and not layer.quantization_mode:
                layer.quantize(found["mode"], config=keras.saving.deserialize_keras_object(found["config"]))
        return model


def is_quantized(model: keras.Model) -> bool:
    """Whether `quantize` has rounded any of its kernels, of which code that reads them must know."""
    return any(layer.quantization_mode for layer in _dense_layers(model))


def _whole(name: str, feature):
    """An averaged feature as what it was the average of; of those that models here read, weights alone are floats."""
    averaged = "float" in str(feature.dtype) and not name.endswith("_weights")
    return keras.KerasTensor(feature.shape, "int32") if averaged else feature


def _dense_layers(model: keras.Model) -> list[keras.layers.Dense]:
    """Each once, in an order that the configuration alone decides."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Dense)]


def _chosen(layer: keras.layers.Layer, filters: Any) -> bool:
    """What keras.Model.quantize makes of `filters`."""
    if filters is None:
        return True
    if callable(filters):
        return bool(filters(layer))
    return any(re.search(pattern, layer.name) for pattern in ([filters] if isinstance(filters, str) else filters))


def _quantization(layer: keras.layers.Dense) -> dict | None:
    if not layer.quantization_mode:
        return None
    config = keras.saving.serialize_keras_object(layer.quantization_config)
    return {"mode": layer.quantization_mode, "config": config}
