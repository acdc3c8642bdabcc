"""The base class of models: export, saving, LoRA, frozen weights, and checks of the data for `fit`."""

import os
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from keras.src.backend import compute_output_spec
from keras.src.backend.common.global_state import get_global_attribute

from albert_tf.base.layers import NO_QUANTIZATION, check_range, known, plain, whole
from tfrecords.base.errors import UserError, check_counts, refuse
from tfrecords.base.files import check_format

_TO_NUMBERS = "give numbers from 0, such as np.array([names.index(label) for label in labels])"


def check_data(features: Any, labels: Any, check_values: Callable[[Any], None]) -> None:
    """Raises UserError for features or labels of a type that the models cannot read.

    `check_values` checks the values of arrays.
    """
    if is_text(features):
        raise UserError(f"features: {NO_TEXTS}")
    spec = getattr(features, "element_spec", None)
    if spec is not None:
        features, labels, _ = keras.utils.unpack_x_y_sample_weight(spec)
    elif not isinstance(features, (dict, list, tuple)) and not _is_array(features):
        # A generator or a keras.utils.PyDataset.
        return
    if isinstance(features, (list, tuple)):
        raise UserError(
            f"features: a {type(features).__name__} is not read; give an array of ids, rows filled up to one length, or"
            " name arrays, such as {'input_ids': ids, 'input_mask': mask}"
        )
    for name, values in features.items() if isinstance(features, dict) else [("input_ids", features)]:
        _check_kind(values, name, NO_TEXTS)
    several = isinstance(labels, (list, tuple)) and any(_is_array(values) for values in labels)
    for values in labels.values() if isinstance(labels, dict) else labels if several else [labels]:
        _check_kind(values, "labels", f"strings are not read; {_TO_NUMBERS}")
    if spec is None:
        check_values(features)


def check_classes(labels: Any, classes: int, sample_weight: Any = None) -> None:
    """Raises UserError for a label of nonzero weight that is not a whole number from 0 to `classes` - 1."""
    values, weights = known(labels), known(sample_weight)
    if values is None or values.dtype.kind not in "iuf" or not values.size:
        return
    if weights is not None and weights.shape == values.shape[: weights.ndim]:
        values = values[weights > 0]
    check_range(values, classes, "labels")
    if values.dtype.kind == "f" and (between := values[values != np.floor(values)]).size:
        raise plain(UserError(f"labels: {between[0]} is no class; give whole numbers from 0 to {classes - 1}"))


def _check_kind(values: Any, name: str, no_strings: str) -> None:
    dtype = str(getattr(values, "dtype", ""))
    is_text = isinstance(values, (list, tuple)) and values and isinstance(values[0], str)
    refuse({
        f"{name}: {no_strings}":
            is_text or "string" in dtype or dtype.startswith(("<U", "|S", "object")),
        f"{name}: a {type(values).__name__} is not read; give an array, rows filled up to one length":
            isinstance(values, (list, tuple)),
        f"{name}: a RaggedTensor is not read; give {name}.to_tensor(), and as input_mask"
        " tf.ones_like(input_ids).to_tensor()":
            "Ragged" in type(values).__name__,
    })  # fmt: skip


def _is_array(values: Any) -> bool:
    return hasattr(values, "shape") and hasattr(values, "dtype")


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


NO_TEXTS = (
    "texts are not read; call loaded.predict(texts) of what albert_tf.load returns, or "
    "albert_tf.Preprocessor(tokenizer)(texts)"
)
_NO_HDF5 = "an HDF5 file cannot hold this model; save it as a file that ends in .keras"
# Of .keras files.
_FORMAT_VERSION = 1


class BaseModel(keras.Model):
    """A Keras model that also saves LoRA adapters and frozen layers; `input` and `output` exist before any call.

    Attributes:
        feature_names: names of an export's int32 inputs.
        input_rank: number of axes of each feature.
        graph_arguments: arguments of `call` in a functional model, whose outputs must not depend on `training`.
    """

    feature_names: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
    input_rank = 2
    graph_arguments: Mapping[str, Any] = {}
    # In a function, so that Keras does not track them.
    _input_and_output: Callable[[], tuple[Any, Any]] | None = None
    # Keras's would have inputs of floats.
    _default_save_signature = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and is_text(args[0]):
            raise plain(UserError(NO_TEXTS))
        if not any(isinstance(value, keras.KerasTensor) for value in keras.tree.flatten((args, kwargs))):
            return super().__call__(*args, **kwargs)
        # A functional model repeats this call with the arguments that it recorded.
        outputs = super().__call__(*args, **{**self.graph_arguments, **kwargs})
        if self._input_and_output is None or _count(outputs) > _count(self._input_and_output()[1]):
            features = args[0] if args else kwargs["features"]
            self._input_and_output = lambda: (features, outputs)
        return outputs

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return compute_output_spec(super().__call__, *args, **kwargs)

    @property
    def input(self) -> Any:
        """Returns symbolic features; `keras.Model(model.input, model.output)` is a functional model."""
        return self._call_in_graph()[0]

    @property
    def output(self) -> Any:
        """Returns symbolic outputs for `input`.

        If functional models have called this model, both are of the call that returned the most outputs.
        """
        return self._call_in_graph()[1]

    def _call_in_graph(self) -> tuple[Any, Any]:
        if self._input_and_output is None:
            self({name: keras.Input(one.shape[1:], dtype=one.dtype, name=name) for name, one in self._features()})
        return self._input_and_output()

    def _features(self) -> list[tuple[str, keras.KerasTensor]]:
        return [(name, keras.KerasTensor((None,) * self.input_rank, "int32")) for name in self.feature_names]

    def compute_output_shape(self, input_shape: Any = None) -> Any:
        return keras.tree.map_structure(lambda tensor: tensor.shape, self.compute_output_spec(dict(self._features())))

    def export(self, *args: Any, **kwargs: Any) -> None:
        """Raises UserError: exports with texts, without padding or with spans are another's work."""
        raise UserError("models are exported by: python -m serving.export --model=... --output_dir=...")

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains as keras.Model does; raises UserError for unreadable data."""
        self._read_class_weight(kwargs)
        self._check_data(x, y, kwargs.get("sample_weight"))
        return super().fit(x, y, *args, **kwargs)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        self._check_data(x, y, sample_weight)
        return super().evaluate(x, y, batch_size, verbose, sample_weight, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_data(x)
        return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        self._read_class_weight(kwargs)
        self._check_data(x, y, sample_weight)
        return super().train_on_batch(x, y, sample_weight, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        self._check_data(x, y, sample_weight)
        return super().test_on_batch(x, y, sample_weight, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        self._check_data(x)
        return super().predict_on_batch(x)

    # Keras calls these before it trains, evaluates or predicts.
    def make_train_function(self, force: bool = False) -> Any:
        traced_functions(self)
        _check_compiled(self)
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        traced_functions(self)
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        traced_functions(self)
        return super().make_predict_function(force)

    def weights_of_classes(self, class_weight: Any) -> dict[int, float]:
        """Returns a weight for each class; raises UserError if labels are not one class a row."""
        raise UserError(
            f"class_weight is for an AlbertClassifier of one class a row, not for this {type(self).__name__}; leave it "
            "out, or give sample_weight"
        )

    def _read_class_weight(self, options: dict[str, Any]) -> None:
        if options.get("class_weight") is not None:
            options["class_weight"] = self.weights_of_classes(options["class_weight"])

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        """Raises UserError for unusable data."""

    def save(self, filepath: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Saves a .keras file; raises UserError for HDF5, which cannot hold these models."""
        if str(filepath).endswith((".h5", ".hdf5")):
            raise UserError(_NO_HDF5)
        super().save(filepath, *args, **kwargs)

    @property
    def layers(self) -> list[keras.layers.Layer]:
        # `keras.saving.save_model` calls this for an HDF5 file, without `save`.
        if get_global_attribute("use_legacy_config"):
            raise UserError(_NO_HDF5)
        return [layer for layer in super().layers if not getattr(layer, "is_folder", False)]

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Under a MirroredStrategy Keras averages a batch over the replicas to learn its shapes: ids become floats.
        if data_batch is not None:
            features, *labels = keras.utils.unpack_x_y_sample_weight(data_batch)
            named = features if isinstance(features, dict) else {"input_ids": features}
            data_batch = ({name: whole(name, feature) for name, feature in named.items()}, *labels)
        super()._symbolic_build(iterator=iterator, data_batch=data_batch)

    def quantize(self, mode: str | None = None, config: Any = None, **kwargs: Any) -> None:
        """Raises UserError: quantization is not supported."""
        raise UserError(NO_QUANTIZATION)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "format_version": _FORMAT_VERSION} | training_state(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        check_format("it", config, _FORMAT_VERSION)
        config.pop("format_version", None)
        adapters, frozen = (config.pop(name, {}) for name in ("adapters", "frozen"))
        if frozen:
            config["trainable"] = True  # The list includes the model itself if it is frozen.
        model = cls(**config)
        restore(model, adapters, frozen)
        return model

    def _post_build(self) -> None:
        super()._post_build()
        if not self.trainable:
            freeze_all_below(self)


def _check_compiled(model: keras.Model) -> None:
    optimizer = model.optimizer
    if optimizer is None or not optimizer.built:
        return
    known, now = (set(map(id, each)) for each in (optimizer._trainable_variables, model.trainable_variables))
    # Under TensorFlow, an optimizer can leave out weights that were frozen.
    if now - known or (known - now and keras.backend.backend() != "tensorflow"):
        raise UserError("other weights train than at the last compile; call compile() before fit")


def is_text(data: Any) -> bool:
    """Returns whether data is a string, or a list of strings."""
    return isinstance(data, (str, bytes)) or (
        isinstance(data, (list, tuple)) and bool(data) and isinstance(data[0], (str, bytes))
    )


class Folder(keras.layers.Layer):
    """An empty layer that makes a folder in `.keras` files."""

    is_folder = True


class Untracked:
    """Wraps layers or variables, so that Keras does not track them a second time."""

    def __init__(self, value: Any):
        self.value = value


def put(owner: keras.layers.Layer, path: str, layer: keras.layers.Layer) -> None:
    """Stores `layer` in `owner`, at `path` below it in `.keras` files."""
    *folders, last = path.split("/")
    for name in folders:
        if not isinstance(getattr(owner, name, None), Folder):
            setattr(owner, name, Folder(name=name))
            getattr(owner, name).built = True
        owner = getattr(owner, name)
    setattr(owner, last, layer)


def _count(outputs: Any) -> int:
    return len(keras.tree.flatten(outputs))


def enable_adapters(model: keras.Model, layers: list[Any], rank: int) -> None:
    """Freezes a model and adds trainable LoRA adapters to the given layers (arXiv:2106.09685)."""
    check_counts(rank=rank)
    if has_adapters(model):
        raise UserError("the encoder has LoRA adapters already; call merge_lora() first")
    for layer in model._flatten_layers():
        layer._trainable = True  # The adapters of a frozen layer would not train.
    for variable in model.variables:
        variable.trainable = False
    for layer in layers:
        layer.enable_lora(rank)


def merge_adapters(model: keras.Model) -> None:
    """Adds each LoRA adapter to its kernel, removes the adapters and makes all weights trainable."""
    for layer in _with_adapters(model):
        scale = layer.lora_alpha / layer.lora_rank
        added = scale * ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
        layer._kernel.assign_add(ops.cast(added, layer._kernel.dtype))
        # Functions that a caller traced still read it, and must not add the adapter twice.
        layer.lora_kernel_b.assign(ops.zeros(layer.lora_kernel_b.shape))
        del layer.lora_kernel_a, layer.lora_kernel_b
        layer.lora_enabled, layer.lora_rank = False, None
    for layer in model._flatten_layers():
        for weight in layer._trainable_variables:
            weight.trainable = True


def has_adapters(model: keras.Model) -> bool:
    """Returns whether any kernel has a LoRA adapter."""
    return bool(_with_adapters(model))


def _with_adapters(model: keras.Model) -> list[keras.layers.Dense]:
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]


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
