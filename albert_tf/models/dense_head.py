from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import ResumableDropout
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.weights import dense
from albert_tf.models.base import EncoderModel, variables_of
from tfrecords.base.errors import UserError


class DenseHeadModel(EncoderModel):
    """Applies dropout and one dense layer to the result of the method `vectors`.

    `inner_heads` is the number of further dense layers, for earlier depth steps.
    """

    needs_pooler = True
    early_exit = False
    logits_of_steps: Callable[[Any, bool], Any]

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
        tokens = () if self.needs_pooler else (None,)
        for layer in (self.dropout, self.head, *self.inner_heads):
            layer.build((None, *tokens, self.encoder.config.hidden_size))

    def head_variables(self) -> dict[str, keras.Variable]:
        variables = variables_of("classifier", self.head)
        for i, head in enumerate(self.inner_heads):
            variables |= variables_of(f"exit_{i}", head)
        return variables

    def vectors(self, features: Any, training: bool) -> Tensor:
        outputs = self.encoder(features, training=training)
        if not (training and self.encoder.config.position_offset):
            return outputs["pooled_output"]
        # RoBERTa's head also has dropout before its tanh layer (transformers RobertaClassificationHead).
        return self.encoder.pooler(self.dropout(outputs["sequence_output"][:, 0], training=True))

    def call(self, features: Any, training: bool = False, every_step: bool | None = None) -> Any:
        """Returns logits for the features of AlbertEncoder.

        With `early_exit`, `every_step` asks for the logits of every depth step; None: only in training.
        """
        if self.early_exit and (training if every_step is None else every_step):
            return self.logits_of_steps(features, training)
        return self.logits(self.head, self.vectors(features, training), training)

    def logits(self, head: keras.layers.Layer, vectors: Tensor, training: bool) -> Tensor:
        return ops.cast(head(self.dropout(vectors, training=training)), "float32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.dropout.rate}
