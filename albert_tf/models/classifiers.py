"""Classifiers, regressors, token classifiers and multiple choice."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.model import check_classes
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name, check_shapes
from albert_tf.models.early_exit import DenseHeadModel, EarlyExitModel
from tfrecords.base.errors import UserError, check_counts

_BINARY = (keras.losses.BinaryCrossentropy, keras.losses.BinaryFocalCrossentropy)


class ClassesModel(EarlyExitModel):
    """A model that scores `num_classes` classes, optionally named.

    Args:
        num_classes: 1 or more.
        dropout: rate before the dense layer.
        early_exit: True adds a head for every depth step, so that a server may stop early.
        labels: the classes' names, by number; saved files and predictions use them.

    Raises:
        UserError: an invalid num_classes, or not one label per class.
    """

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        num_classes: int,
        dropout: float = 0.1,
        early_exit: bool = False,
        labels: Sequence[str] | None = None,
        **kwargs: Any,
    ):
        check_counts(num_classes=num_classes)
        super().__init__(encoder, num_classes, dropout, early_exit, **kwargs)
        self.name_classes(num_classes, labels)

    @property
    def probabilities(self) -> str:  # type: ignore[override]
        return "sigmoid" if self.num_classes == 1 else "softmax"

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        super()._check_data(x, y, sample_weight)
        if _is_of_classes(self):
            check_classes(y, self.num_classes, sample_weight)

    def name_classes(self, num_classes: int, labels: Sequence[str] | None) -> None:
        if labels is not None and len(labels) != num_classes:
            raise UserError(f"{len(labels)} labels for {num_classes} classes: {', '.join(map(str, labels))}")
        self.num_classes = num_classes
        self.labels = None if labels is None else tuple(map(str, labels))

    def get_config(self) -> dict[str, Any]:
        names = {} if self.labels is None else {"labels": list(self.labels)}
        return {**super().get_config(), "num_classes": self.num_classes, **names}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertClassifier(ClassesModel):
    """Classifies a text or a pair of texts (classifier_utils.py:768-812 of google-research/albert).

    Maps the features of AlbertEncoder to float32 logits [batch, num_classes]. `compile` makes Keras's losses by name
    read logits; a loss object needs `from_logits=True`. Arguments and errors are those of ClassesModel.

    Args:
        multi_label: whether a text may have several classes, each with its own probability; labels are float [batch,
            num_classes] of 0 and 1.

    >>> import numpy as np
    >>> model = AlbertClassifier(AlbertConfig.named("albert_tiny"), num_classes=2, labels=["dull", "fine"])
    >>> ids = np.array([[101, 2769, 102, 0], [101, 872, 1962, 102]])
    >>> model.predict({"input_ids": ids, "input_mask": np.minimum(ids, 1)}, verbose=0).shape
    (2, 2)
    >>> model.compile()
    >>> history = model.fit({"input_ids": ids}, np.array([0, 1]), verbose=0)
    """

    def __init__(self, *args: Any, multi_label: bool = False, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if multi_label and self.early_exit:
            raise UserError("early exits are by one label; leave out multi_label")
        self.multi_label = multi_label

    @property
    def probabilities(self) -> str:  # type: ignore[override]
        return "sigmoid" if self.multi_label else super().probabilities

    def weights_of_classes(self, class_weight: Any) -> dict[int, float]:
        if self.num_classes > 1 and isinstance(self.loss, _BINARY):
            return super().weights_of_classes(class_weight)
        classes = range(max(self.num_classes, 2))
        if not isinstance(class_weight, Mapping) or (class_weight.keys() - set(classes)):
            raise UserError(f"class_weight={class_weight}: give a dict from classes, 0 to {classes[-1]}, to weights")
        # Keras counts a missing class as 1 in arrays, and fails on it in a tf.data.Dataset.
        return {number: float(class_weight.get(number, 1.0)) for number in classes}

    def default_loss(self) -> dict[str, Any]:
        if self.multi_label:
            loss = keras.losses.BinaryCrossentropy(from_logits=True)
            return {"loss": loss, "metrics": [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]}
        return _classes_loss() | {"metrics": _accuracy()}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **({"multi_label": True} if self.multi_label else {})}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertTokenClassifier(ClassesModel):
    """Classifies every token, as for named entities.

    Maps the features of AlbertEncoder to float32 logits [batch, sequence, num_classes]. Pass `fit` a sample weight
    [batch, sequence], 0 at padding. Arguments and errors are those of ClassesModel.

    >>> import numpy as np
    >>> model = AlbertTokenClassifier(AlbertConfig.named("albert_tiny"), num_classes=3, labels=["O", "B-PER", "I-PER"])
    >>> model.predict({"input_ids": np.array([[101, 2769, 102, 0]])}, verbose=0).shape
    (1, 4, 3)
    """

    needs_pooler = False
    exit_kind = "tagging"

    def default_loss(self) -> dict[str, Any]:
        # Averaged over words: with all columns, padding would reduce a batch's weight.
        return _classes_loss(reduction="mean_with_sample_weight") | {"weighted_metrics": _accuracy()}

    def vectors(self, features: Any, training: bool) -> Tensor:
        return self.step_vectors(self.encoder(features, training=training)["sequence_output"])

    def step_vectors(self, hidden: Tensor) -> Tensor:
        return self.encoder.of_tokens(hidden)


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertRegressor(EarlyExitModel):
    """Predicts a number for a text or a pair of texts, such as STS-B's similarity: float32 [batch, 1].

    Args:
        dropout: rate before the dense layer.
        early_exit: True adds a head for every depth step.
        activation: applied to the number, as in cross-encoders: "linear", or a Keras activation's name.

    Raises:
        UserError: early exits with an activation.

    >>> import numpy as np
    >>> model = AlbertRegressor(AlbertConfig.named("albert_tiny"))
    >>> model.predict({"input_ids": np.array([[101, 2769, 102, 0]])}, verbose=0).shape
    (1, 1)
    """

    exit_kind = "regression"

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        dropout: float = 0.1,
        early_exit: bool = False,
        activation: str = "linear",
        **kwargs: Any,
    ):
        if early_exit and activation != "linear":
            raise UserError(f"early exits give numbers as they are; leave out activation '{activation}'")
        super().__init__(encoder, 1, dropout, early_exit, **kwargs)
        self.activation = activation

    def logits(self, head: keras.layers.Layer, vectors: Tensor, training: bool) -> Tensor:
        numbers = super().logits(head, vectors, training)
        return numbers if self.activation == "linear" else keras.activations.get(self.activation)(numbers)

    @property
    def probabilities(self) -> str:  # type: ignore[override]
        return "sigmoid" if self.activation == "linear" else ""

    def returns_logits(self, loss: Any) -> bool:
        return isinstance(loss, _BINARY)

    def default_loss(self) -> dict[str, Any]:
        return {"loss": "mse", "metrics": ["mae"]}

    def get_config(self) -> dict[str, Any]:
        own = {} if self.activation == "linear" else {"activation": self.activation}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertMultipleChoice(DenseHeadModel):
    """Chooses one of several candidate texts.

    Maps the features of AlbertEncoder, [batch, choices, sequence], to float32 logits [batch, choices]. `dropout` is the
    rate before the dense layer.

    >>> import numpy as np
    >>> model = AlbertMultipleChoice(AlbertConfig.named("albert_tiny"))
    >>> model.predict({"input_ids": np.array([[[101, 2769, 102], [101, 872, 102]]])}, verbose=0).shape
    (1, 2)
    """

    input_rank = 3
    probabilities = "softmax"

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, dropout: float = 0.1, **kwargs: Any):
        super().__init__(encoder, 1, dropout, **kwargs)

    def default_loss(self) -> dict[str, Any]:
        return _classes_loss() | {"metrics": _accuracy()}

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        super()._check_data(x, y, sample_weight)
        if isinstance(x, dict) and "input_ids" in x and _is_of_classes(self):
            check_classes(y, x["input_ids"].shape[1], sample_weight)

    def call(self, features: Any, training: bool = False) -> Tensor:  # type: ignore[override]
        features = by_name(features)
        check_shapes(features, "[batch, choices, sequence]")
        choices, length = ops.shape(features["input_ids"])[1:]
        names = features.keys() & {"input_ids", "input_mask", "segment_ids", "position_ids", "sequence_ids"}
        rows = {name: ops.reshape(features[name], (-1, length)) for name in sorted(names)}
        return ops.reshape(super().call(rows, training), (-1, choices))


def _is_of_classes(model: keras.Model) -> bool:
    return isinstance(getattr(model, "loss", None), keras.losses.SparseCategoricalCrossentropy)


def _classes_loss(**options: Any) -> dict[str, Any]:
    return {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)}


def _accuracy() -> list[keras.metrics.Metric]:
    return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
