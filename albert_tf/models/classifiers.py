"""Models that answer by one dense layer: a class or a number for a text, a class for a token, one choice of several."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.dense import dense
from albert_tf.layers.dropout import ResumableDropout
from albert_tf.layers.embeddings import by_name
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.base import EncoderModel, variables_of
from tfrecords.base.errors import UserError


class DenseHeadModel(EncoderModel):
    """Applies dropout, then one dense layer, to what `vectors` takes from the encoder.

    Args:
        encoder: an AlbertEncoder, or the AlbertConfig of a new one.
        units: outputs of the dense layer.
        dropout: rate before it.
        inner_heads: how many more such layers there are, for the outputs of earlier steps.
        **kwargs: arguments of `keras.Model`.

    Raises:
        UserError: the encoder lacks the pooler that the model needs.
    """

    needs_pooler = True

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        units: int,
        dropout: float = 0.1,
        inner_heads: int = 0,
        **kwargs: Any,
    ):
        super().__init__(encoder, pooler=self.needs_pooler, **kwargs)
        if self.needs_pooler and self.encoder.pooler is None:
            raise UserError(f"{type(self).__name__} needs an encoder with a pooler")
        config = self.encoder.config
        self.dropout = ResumableDropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = dense(config, units, dtype=self.dtype_policy, name="head")
        self.inner_heads = [dense(config, units, dtype=self.dtype_policy, name=f"exit_{i}") for i in range(inner_heads)]
        self.build((None,) * self.input_rank)

    def build(self, input_shape: Any = None) -> None:
        for layer in (self.dropout, self.head, *self.inner_heads):
            layer.build((*self.compute_output_shape()[:-1], self.encoder.config.hidden_size))

    def compute_output_shape(self, input_shape: Any = None) -> tuple:
        return (None, self.head.units)

    def head_variables(self) -> dict[str, keras.Variable]:
        variables = variables_of("classifier", self.head)
        for i, head in enumerate(self.inner_heads):
            variables |= variables_of(f"exit_{i}", head)
        return variables

    def vectors(self, features: Any, training: bool) -> Tensor:
        """Gives the pooled output [batch, hidden_size]; a subclass may take others."""
        outputs = self.encoder(features, training=training)
        if not (training and self.encoder.config.position_offset):
            return outputs["pooled_output"]
        # RoBERTa's head drops out before its tanh layer, too (transformers RobertaClassificationHead).
        return self.encoder.pooler(self.dropout(outputs["sequence_output"][:, 0], training=True))

    def call(self, features: Any, training: bool = False) -> Tensor:
        return self.logits(self.head, self.vectors(features, training), training)

    def logits(self, head: keras.layers.Layer, vectors: Tensor, training: bool) -> Tensor:
        """Gives a head's float32 logits of what `vectors` returns."""
        return ops.cast(head(self.dropout(vectors, training=training)), "float32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.dropout.rate}


class EarlyExitModel(DenseHeadModel):
    """Has, with `early_exit`, a head after every depth step; pooler and dropout are shared.

    Its loss is then the mean of all steps' losses, each weighted by the number of its step, as PABEE's (Zhou et al.
    2020, section 3.3). `call` returns the last step's logits, but a list of every step's when training.
    """

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        units: int,
        dropout: float = 0.1,
        early_exit: bool = False,
        **kwargs: Any,
    ):
        config = getattr(encoder, "config", encoder)
        inner_heads = config.num_steps - 1 if early_exit and isinstance(config, AlbertConfig) else 0
        super().__init__(encoder, units, dropout, inner_heads, **kwargs)
        self.early_exit = early_exit

    @property
    def exit_heads(self) -> list[keras.layers.Layer]:
        """Gives a dense layer for each step, the last one being `head`; [] without `early_exit`."""
        return [*self.inner_heads, self.head] if self.early_exit else []

    def step_vectors(self, hidden: Tensor) -> Tensor:
        """Gives what a head sees of a step's output [batch, sequence, hidden_size]: the pooled [batch, hidden_size]."""
        return self.encoder.pooler(hidden[:, 0])

    def exit_logits(self, features: Any, training: bool = False) -> list[Tensor]:
        """Gives every step's float32 logits, each as `call` returns them."""
        states = self.encoder(features, training=training, output_hidden_states=True)["hidden_states"][1:]
        return [self.logits(head, self.step_vectors(state), training) for head, state in zip(self.exit_heads, states)]

    def call(self, features: Any, training: bool = False) -> Tensor | list[Tensor]:
        if self.early_exit and training:
            return self.exit_logits(features, training=True)
        return super().call(features, training=training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        loss = super().compute_loss
        if not isinstance(y_pred, list):
            return loss(x, y, y_pred, sample_weight, training=training)
        losses = [step * loss(x, y, logits, sample_weight, training=training) for step, logits in enumerate(y_pred, 1)]
        return sum(losses) / sum(range(1, len(losses) + 1))

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        last = y_pred[-1] if isinstance(y_pred, list) else y_pred
        return super().compute_metrics(x, y, last, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "early_exit": self.early_exit}


class ClassesModel(EarlyExitModel):
    """Scores `num_classes` classes, which may have names.

    Names are part of the model: files keep them, `save_huggingface` writes them, predictions are called by them.

    Args:
        encoder: an AlbertEncoder, or the AlbertConfig of a new one.
        num_classes: number of classes.
        dropout: rate before the dense layer.
        early_exit: whether there is a head after every depth step, of which a server may stop at the first sure one.
        labels: the classes' names, in the order of their numbers.
        **kwargs: arguments of `keras.Model`.

    Raises:
        UserError: there is not a name for each class.
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
        super().__init__(encoder, num_classes, dropout, early_exit, **kwargs)
        self.name_classes(num_classes, labels)

    def name_classes(self, num_classes: int, labels: Sequence[str] | None) -> None:
        """Names the classes; raises UserError unless there is a name for each."""
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

    It takes the features of AlbertEncoder and gives float32 logits [batch, num_classes]; a loss of your own needs
    `from_logits=True`. Arguments and errors are those of ClassesModel.

    >>> import numpy as np
    >>> model = AlbertClassifier(AlbertConfig.named("albert_tiny"), num_classes=2, labels=["dull", "fine"])
    >>> ids = np.array([[101, 2769, 102, 0], [101, 872, 1962, 102]])
    >>> model.predict({"input_ids": ids, "input_mask": np.minimum(ids, 1)}, verbose=0).shape
    (2, 2)
    >>> model.compile()
    >>> history = model.fit({"input_ids": ids}, np.array([0, 1]), verbose=0)
    """

    def default_loss(self) -> dict[str, Any]:
        return _classes_loss() | {"metrics": _accuracy()}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertTokenClassifier(ClassesModel):
    """Classifies every token, as for named entities.

    It takes the features of AlbertEncoder and gives float32 logits [batch, sequence, num_classes]. Give `fit` a sample
    weight [batch, sequence] that is 0 at padding. Arguments and errors are those of ClassesModel.

    >>> import numpy as np
    >>> model = AlbertTokenClassifier(AlbertConfig.named("albert_tiny"), num_classes=3, labels=["O", "B-PER", "I-PER"])
    >>> model.predict({"input_ids": np.array([[101, 2769, 102, 0]])}, verbose=0).shape
    (1, 4, 3)
    """

    needs_pooler = False

    def default_loss(self) -> dict[str, Any]:
        # Over the words: a mean over all columns would make a batch count less the more padding it has.
        return _classes_loss(reduction="mean_with_sample_weight") | {"weighted_metrics": _accuracy()}

    def compute_output_shape(self, input_shape: Any = None) -> tuple:
        return (None, None, self.head.units)

    def vectors(self, features: Any, training: bool) -> Tensor:
        return self.encoder(features, training=training)["sequence_output"]

    def step_vectors(self, hidden: Tensor) -> Tensor:
        return hidden


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertRegressor(EarlyExitModel):
    """Gives a number for a text or a pair of texts, such as STS-B's similarity: float32 [batch, 1].

    Args:
        encoder: an AlbertEncoder, or the AlbertConfig of a new one.
        dropout: rate before the dense layer.
        early_exit: whether there is a head after every depth step.
        **kwargs: arguments of `keras.Model`.

    >>> import numpy as np
    >>> model = AlbertRegressor(AlbertConfig.named("albert_tiny"))
    >>> model.predict({"input_ids": np.array([[101, 2769, 102, 0]])}, verbose=0).shape
    (1, 1)
    """

    def __init__(
        self, encoder: AlbertEncoder | AlbertConfig, dropout: float = 0.1, early_exit: bool = False, **kwargs: Any
    ):
        super().__init__(encoder, 1, dropout, early_exit, **kwargs)

    def default_loss(self) -> dict[str, Any]:
        return {"loss": "mse", "metrics": ["mae"]}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertMultipleChoice(DenseHeadModel):
    """Chooses one of several candidate texts.

    The features of AlbertEncoder have one more axis, [batch, choices, sequence]; the logits are float32
    [batch, choices].

    Args:
        encoder: an AlbertEncoder, or the AlbertConfig of a new one.
        dropout: rate before the dense layer.
        **kwargs: arguments of `keras.Model`.

    >>> import numpy as np
    >>> model = AlbertMultipleChoice(AlbertConfig.named("albert_tiny"))
    >>> model.predict({"input_ids": np.array([[[101, 2769, 102], [101, 872, 102]]])}, verbose=0).shape
    (1, 2)
    """

    input_rank = 3

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, dropout: float = 0.1, **kwargs: Any):
        super().__init__(encoder, 1, dropout, **kwargs)

    def default_loss(self) -> dict[str, Any]:
        return _classes_loss() | {"metrics": _accuracy()}

    def compute_output_shape(self, input_shape: Any = None) -> tuple:
        return (None, None)

    def call(self, features: Any, training: bool = False) -> Tensor:
        features = by_name(features)
        choices, length = ops.shape(features["input_ids"])[1:]
        names = features.keys() & {"input_ids", "input_mask", "segment_ids"}
        rows = {name: ops.reshape(features[name], (-1, length)) for name in sorted(names)}
        return ops.reshape(super().call(rows, training=training), (-1, choices))


def _classes_loss(**options: Any) -> dict[str, Any]:
    """Cross-entropy of logits and whole-numbered classes, for `compile`; options are the loss's."""
    return {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)}


def _accuracy() -> list[keras.metrics.Metric]:
    return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
