"""Layers for the weights of extensions, with stable names for files and optimizers.

`albert_tf.extension` defines extensions and their layers' descriptions.
"""

from collections.abc import Mapping
from typing import Any

import keras

from albert_tf.base.layers import MeasuredMean
from albert_tf.base.model import Untracked, put


class ExtensionLayer(keras.layers.Layer):
    """Holds weights of an extension as attributes.

    Attributes:
        extension: the extension.
        steps: numbers of the plan's steps that run the half that owns the layer.
        means: the extension's metrics. Not in the encoder: Keras ignores metrics of a model in a model.
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
    """A mixin of layers that may hold extensions' weights: the encoder, its embeddings, the halves of blocks."""

    dtype_policy: Any

    def add_extension_layers(self, config: Any, owner: str, steps: tuple[int, ...] = ()) -> None:
        """Makes the extensions' layers; arguments as of `Extension.weight_layers`."""
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
        """Returns each extension with weights here, a layer's description and its weights by name."""
        return [
            (extension, spec, {name: getattr(layer or self, name) for name in spec.weights})
            for extension, spec, layer in self._extension_layers.value
        ]

    def weights_of(self, extension: str) -> dict[str, Any]:
        """Returns an extension's weights by name; in a half, "layer/name" for those of a layer of its own."""
        is_half = not isinstance(self, keras.Model)
        return {
            f"{spec.layer}/{name}" if spec.disk and is_half else name: weight
            for one, spec, weights in self.own_extension_weights()
            if one.name == extension
            for name, weight in weights.items()
        }


class ExtendedEncoder(ExtensionOwner):
    """An encoder's view of the extensions' layers, its own and those of its `halves`, and of their metrics.

    Attributes:
        unmeasured: the last call's values of metrics, by name.
    """

    unmeasured: Mapping[str, Any] = {}
    _halves: Untracked

    @property
    def halves(self) -> dict[tuple[str, int], Any]:
        """Returns the distinct halves of blocks by kind and number."""
        return self._halves.value

    @property
    def means(self) -> list[keras.metrics.Metric]:
        """Returns the extensions' metrics, which `measure` updates."""
        return [mean for layer in self.own_extension_layers() for mean in layer.means]

    def measure(self) -> None:
        """Adds the last call's rows to the extensions' metrics, in the same graph or trace.

        The models of this package do so. Your own model shows these metrics if its `compute_loss` calls this first.
        """
        values, self.unmeasured = self.unmeasured, {}
        for mean in self.means:
            if mean.name in values:
                mean.update_state(values[mean.name])

    def extension_layers(self) -> dict[str, ExtensionLayer]:
        """Returns the extensions' layers by their names in `checkpoints`: "depth_..."."""
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
