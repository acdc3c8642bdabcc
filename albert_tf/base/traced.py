"""Functions that were traced from a model, and the state of its layers on which they depend."""

import types
from collections.abc import Callable
from typing import Any

import keras

# What Keras stores in layers and models, and does not compute with. Private names are excluded, too.
_OF_KERAS = {*vars(keras.Model(name="model")), "optimizer", "stop_training", "stop_evaluating", "stop_predicting"}
_PLAIN = (bool, int, float, str, types.FunctionType)


class _Traced:
    """Functions by key, with the state of the layers from which they were traced.

    It holds the variables, too, so that no other variable gets the `id` of one of them.
    """

    def __init__(self, state: list[tuple], variables: list[keras.Variable]):
        self.state, self.variables, self.functions = state, variables, dict[Any, Callable]()


def traced_functions(model: keras.Model) -> dict[Any, Callable]:
    """Returns the functions that were traced from a model, by key; callers add theirs.

    If what a layer computes or trains has changed since the last call, the dict is empty, and Keras makes its own
    functions again, too.
    """
    layers = model._flatten_layers()
    variables = [one for layer in layers for one in (*layer._trainable_variables, *layer._non_trainable_variables)]
    state = [*map(_state, layers), *((id(one), one.trainable) for one in variables)]
    traced = getattr(model, "_traced", None)
    if traced is None or traced.state != state:
        model._traced = traced = _Traced(state, variables)
        model.train_function = model.test_function = model.predict_function = None
    return traced.functions


def _state(layer: keras.layers.Layer) -> tuple:
    values = vars(layer)
    names = [name for name in values.keys() - _OF_KERAS if name[0] != "_"]
    attributes = {
        name: value
        for name in names
        if isinstance(value := values[name], _PLAIN) or hasattr(type(value), "__dataclass_fields__")
    }
    return type(layer), layer.trainable, layer.dtype_policy.name, attributes
