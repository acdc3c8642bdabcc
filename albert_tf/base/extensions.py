"""Layers that hold the weights of encoder extensions (see `albert_tf.config.extension`)."""

from collections.abc import Mapping
from typing import Any

import keras

from albert_tf.base.layers import MeasuredMean
from albert_tf.base.model import Untracked, put


class ExtensionLayer(keras.layers.Layer):
    """Holds weights of an encoder extension as attributes.

    Attributes:
        steps: indices of the depth steps that use the weights; only for layers in an attention or feed-forward half.
        means: the extension's metrics (Keras Means).
    """

    def __init__(self, config: Any, extension: Any, spec: Any, owner: str, steps: tuple, **kwargs: Any):
        super().__init__(name=spec.layer, **kwargs)
        self.config, self.extension, self.spec, self.steps = config, extension, spec, tuple(steps)
        self.means = [MeasuredMean(name=name) for name in (extension.metrics() if owner == "encoder" else ())]

    def build(self, input_shape: Any = None) -> None:
        _add_weights(self, self.config, self.spec)


def _add_weights(layer: keras.layers.Layer, config: Any, spec: Any) -> None:
    for name, one in spec.weights.items():
        start = one.initializer
        if start == "normal":  # Made only here: Keras draws a seed for each initializer.
            start = keras.initializers.TruncatedNormal(stddev=config.initializer_range)
        own = {"autocast": one.autocast, "constraint": one.constraint, "initializer": start}
        setattr(layer, name, layer.add_weight(name=name, shape=one.shape, **own))


class ExtensionOwner:
    """A mixin for layers that have extension weights."""

    dtype_policy: Any

    def add_extension_layers(self, config: Any, owner: str, steps: tuple[int, ...] = ()) -> None:
        """Creates this layer's extension layers; arguments are as in `Extension.weight_layers`."""
        self._extension_layers = Untracked([])
        for extension in config.extensions:
            for spec in extension.weight_layers(config, owner, steps):
                layer = None
                if spec.disk:
                    layer = ExtensionLayer(config, extension, spec, owner, steps, dtype=self.dtype_policy)
                    setattr(self, spec.attribute, layer)
                self._extension_layers.value.append((extension, spec, layer))

    def name_on_disk(self) -> None:
        for _, spec, layer in self._extension_layers.value:
            if layer is not None and spec.disk != spec.attribute:
                put(self, spec.disk, layer)

    def build_extension_layers(self, config: Any) -> None:
        for _, spec, layer in self._extension_layers.value:
            if layer is None:
                _add_weights(self, config, spec)  # type: ignore[arg-type]
            elif not layer.built:
                layer.build(None)

    def own_extension_layers(self) -> list[ExtensionLayer]:
        return [layer for _, _, layer in self._extension_layers.value if layer is not None]

    def own_extension_weights(self) -> list[tuple[Any, Any, dict[str, Any]]]:
        """Returns (extension, WeightLayer, weights by name) for each WeightLayer of this owner."""
        return [
            (extension, spec, {name: getattr(layer or self, name) for name in spec.weights})
            for extension, spec, layer in self._extension_layers.value
        ]

    def weights_of(self, extension: str) -> dict[str, Any]:
        """Returns an extension's weights by name; in attention and feed-forward halves, names are "layer/name"."""
        is_half = not isinstance(self, keras.Model)
        return {
            f"{spec.layer}/{name}" if spec.disk and is_half else name: weight
            for one, spec, weights in self.own_extension_weights()
            if one.name == extension
            for name, weight in weights.items()
        }


class ExtendedEncoder(ExtensionOwner):
    """A mixin for encoders with extensions; `unmeasured` holds a call's metric values until `measure` is called."""

    unmeasured: Mapping[str, Any] = {}
    halves: dict[tuple[str, int], Any]

    @property
    def means(self) -> list[keras.metrics.Metric]:
        return [mean for layer in self.own_extension_layers() for mean in layer.means]

    def measure(self) -> None:
        """Updates the extensions' metrics with the last call's values.

        To show them in your own model, call this first in its `compute_loss`.
        """
        values, self.unmeasured = self.unmeasured, {}
        for mean in self.means:
            if mean.name in values:
                mean.update_state(values[mean.name])

    def extension_layers(self) -> dict[str, ExtensionLayer]:
        """Returns the layers of unpublished extensions, by the names that `checkpoints` uses."""
        layers = {layer.name: layer for layer in self.own_extension_layers() if not layer.extension.published}
        for (kind, i), half in sorted(self.halves.items()):
            for layer in half.own_extension_layers():
                if not layer.extension.published:
                    name = layer.extension.name
                    layers[f"{name}/{kind}_{i}/{layer.name.removeprefix(f'{name}_')}"] = layer
        return layers

    @property
    def depth_variables(self) -> dict[str, keras.Variable]:
        layers = self.extension_layers()
        return {f"{name}/{variable.name}": variable for name, layer in layers.items() for variable in layer.weights}
