"""What every model here is: an encoder, and something on it."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.base_model import BaseModel
from albert_tf.layers.dense import dense
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.resumable_dropout import ResumableDropout
from albert_tf.optimizers import AdamWeightDecay
from tfrecords.base.errors import UserError


def variables_of(prefix: str, layer: keras.layers.Layer) -> dict[str, keras.Variable]:
    """A simple layer's variables as prefix/kernel, prefix/bias and so on."""
    return {f"{prefix}/{variable.name}": variable for variable in layer.variables}


class EncoderModel(BaseModel):
    """Holds `encoder` (an AlbertEncoder) and keeps it through `get_config` and `from_config`.

    Args:
        encoder: an AlbertEncoder, or the AlbertConfig of a new one.
        pooler: whether a new one has a pooler.

    Raises:
        UserError: `encoder` is neither.
    """

    # Of `compile` without an optimizer: what fine-tuning begins with.
    learning_rate = 2e-5

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, pooler: bool = True, **kwargs):
        if isinstance(encoder, AlbertConfig):
            encoder = AlbertEncoder(encoder, pooler=pooler, dtype=kwargs.get("dtype"))
        if not isinstance(encoder, AlbertEncoder):
            hint = "; give its .encoder" if isinstance(encoder, EncoderModel) else ""
            raise UserError(
                f"{type(self).__name__} needs an AlbertEncoder or an AlbertConfig, not a {type(encoder).__name__}{hint}"
            )
        kwargs.setdefault("dtype", encoder.dtype_policy)
        super().__init__(**kwargs)
        self.encoder = encoder

    def default_loss(self) -> dict[str, Any]:
        """`loss` and metrics of a `compile` that names no loss; {} where the model brings its own or there is none."""
        return {}

    def compile(self, optimizer="auto", loss="auto", **kwargs):
        """As keras.Model.compile. Left out, the optimizer is ALBERT's AdamW at `learning_rate`, clipped at norm 1, and
        loss and metrics are those of the model's task; metrics of your own replace the task's."""
        if optimizer == "auto":
            optimizer = AdamWeightDecay(self.learning_rate, global_clipnorm=1.0)
        if loss == "auto":
            defaults = self.default_loss()
            loss = defaults.pop("loss", None)
            own = kwargs.get("metrics") is not None or kwargs.get("weighted_metrics") is not None
            kwargs = kwargs if own else defaults | {key: value for key, value in kwargs.items() if value is not None}
        # Keras would go on with the metrics of an earlier compile.
        self._compile_metrics = None
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def compile_from_config(self, config):
        # Keras leaves a model with a `compile` of its own uncompiled.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def head_variables(self) -> dict[str, keras.Variable]:
        """The model's own variables by the names that `checkpoints` knows them by."""
        return {}

    def get_config(self):
        return {**super().get_config(), "encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config):
        return super().from_config({**config, "encoder": keras.saving.deserialize_keras_object(config["encoder"])})


class NamedClasses:
    """For models of classes: `num_classes`, and `labels`, their names by number where they have any.

    Names are part of the model: files keep them, `save_huggingface` writes them, predictions are called by them.
    """

    def name_classes(self, num_classes: int, labels: Sequence[str] | None) -> None:
        """Raises UserError unless there is a name for each class."""
        if labels is not None and len(labels) != num_classes:
            raise UserError(f"{len(labels)} labels for {num_classes} classes: {', '.join(map(str, labels))}")
        self.num_classes = num_classes
        self.labels = None if labels is None else tuple(map(str, labels))

    def get_config(self):
        names = {} if self.labels is None else {"labels": list(self.labels)}
        return {**super().get_config(), "num_classes": self.num_classes, **names}


def classes_loss(**options) -> dict[str, Any]:
    """Cross-entropy of logits and whole-numbered classes, for `compile`. options: of the loss."""
    return {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)}


def accuracy() -> list[keras.metrics.Metric]:
    return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]


class DenseHeadModel(EncoderModel):
    """Dropout, then one dense layer, on what `vectors` takes from the encoder.

    inner_heads: how many more such layers there are, for the outputs of earlier steps.

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
        **kwargs,
    ):
        super().__init__(encoder, pooler=self.needs_pooler, **kwargs)
        if self.needs_pooler and self.encoder.pooler is None:
            raise UserError(f"{type(self).__name__} needs an encoder with a pooler")
        config = self.encoder.config
        self.dropout = ResumableDropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = dense(config, units, dtype=self.dtype_policy, name="head")
        self.inner_heads = [dense(config, units, dtype=self.dtype_policy, name=f"exit_{i}") for i in range(inner_heads)]
        self.build((None,) * self.input_rank)

    def build(self, input_shape=None):
        for layer in (self.dropout, self.head, *self.inner_heads):
            layer.build((*self.compute_output_shape()[:-1], self.encoder.config.hidden_size))

    def compute_output_shape(self, input_shape=None):
        return (None, self.head.units)

    def head_variables(self):
        variables = variables_of("classifier", self.head)
        for i, head in enumerate(self.inner_heads):
            variables |= variables_of(f"exit_{i}", head)
        return variables

    def vectors(self, features, training):
        """The pooled output [batch, hidden_size]; a subclass may take others."""
        return self.encoder(features, training=training)["pooled_output"]

    def call(self, features, training=False):
        return self.logits(self.head, self.vectors(features, training), training)

    def logits(self, head, vectors, training):
        return ops.cast(head(self.dropout(vectors, training=training)), "float32")

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate}
