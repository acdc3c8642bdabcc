"""Saves and restores LoRA adapters and frozen layers and weights, which Keras's configurations lack."""

from collections.abc import Iterator
from typing import Any

import keras


def freeze_all_below(model: keras.layers.Layer) -> None:
    """Freezes all inner layers; the constructor argument `trainable=False` freezes only the outer one."""
    for layer in model._flatten_layers(include_self=False, recursive=False):
        layer.trainable = True  # TensorFlow ignores a value that the layer has already, although inner layers may not.
        layer.trainable = False


def training_state(model: keras.Model) -> dict[str, Any]:
    """Returns a model's LoRA adapters and frozen parts, for `restore`.

    "adapters" maps layer paths to rank and alpha; "frozen" maps "layers" and "weights" to frozen paths. The model's
    own path is "".
    """
    adapters, layers, weights = {}, [], []
    for path, layer in layers_by_path(model):
        if getattr(layer, "lora_enabled", False):
            adapters[path] = {"rank": layer.lora_rank, "alpha": layer.lora_alpha}
        if not layer.trainable:
            layers.append(path)
        weights += [f"{path}/{weight.name}" for weight in layer._trainable_variables if not weight.trainable]
    frozen = {"layers": layers, "weights": weights}
    return ({"adapters": adapters} if adapters else {}) | ({"frozen": frozen} if layers or weights else {})


def restore(model: keras.Model, adapters: dict[str, dict], frozen: dict[str, list[str]]) -> None:
    """Applies a `training_state` to a model whose weights all train; entries for layers that it lacks are ignored."""
    for path, layer in layers_by_path(model):
        if path in adapters and not layer.lora_enabled:  # An inner model makes its own.
            layer.enable_lora(adapters[path]["rank"], lora_alpha=adapters[path]["alpha"])
    layers, weights = set(frozen.get("layers", ())), set(frozen.get("weights", ()))
    for path, layer in layers_by_path(model):
        if path in layers:
            layer._trainable = False  # The property would freeze the inner layers, too.
        for weight in layer._trainable_variables:
            if f"{path}/{weight.name}" in weights:
                weight.trainable = False


def layers_by_path(model: keras.layers.Layer) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yields (path, layer) once for every layer; the first is the model, with the path ""."""
    seen = set()

    def below(path: str, layer: keras.layers.Layer) -> Iterator[tuple[str, keras.layers.Layer]]:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        if not getattr(layer, "is_folder", False):  # Only a name in files.
            yield path, layer
        for inner in layer._layers:
            yield from below(f"{path}/{inner.name}", inner)

    yield from below("", model)
