from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.heads import MaskedLMHead
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from tfrecords.base.errors import UserError

SPARSE_POOLINGS = ("splade_max", "splade_sum")
# How often a weight is damped by log(1 + weight), by sentence-transformers' name.
SPARSE_ACTIVATIONS = {"relu": 1, "log1p_relu": 2}


def sparse_weights(logits: Tensor, pooling: str, activation: str) -> Tensor:
    """Weighs the vocabulary for one text: from the logits of its tokens, [tokens, words], to float32 [words].

    Source: SPLADE (arXiv:2109.10086, equations 1 and 2): the maximum or sum over tokens of log(1 + relu(logit)).
    """
    weights = ops.relu(ops.cast(logits, "float32"))
    for _ in range(SPARSE_ACTIVATIONS[activation]):
        weights = ops.log1p(weights)
    return ops.max(weights, axis=0) if pooling == "splade_max" else ops.sum(weights, axis=0)


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertSparseEmbedder(AlbertSentenceEmbedder):
    """Weighs each word of the vocabulary for a text (SPLADE), float32 [batch, vocab_size], most of them 0.

    Args:
        pooling: "splade_max" or "splade_sum" over the tokens, see `sparse_weights`.
        activation: "relu", or "log1p_relu", which damps twice.

    Raises:
        UserError: an unknown pooling or activation.

    >>> import numpy as np
    >>> model = AlbertSparseEmbedder(AlbertConfig.named("albert_tiny"))
    >>> model.predict({"input_ids": np.array([[101, 2769, 102], [101, 872, 102]])}, verbose=0).shape
    (2, 21128)
    """

    known_poolings = SPARSE_POOLINGS

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        pooling: str = "splade_max",
        activation: str = "relu",
        **kwargs: Any,
    ):
        if activation not in SPARSE_ACTIVATIONS:
            raise UserError(f"activation '{activation}' is none of {', '.join(SPARSE_ACTIVATIONS)}")
        self.activation = activation
        super().__init__(encoder, pooling, False, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        config = self.encoder.config
        self.masked_lm_head = MaskedLMHead(
            config, self.encoder.embeddings, dtype=self.dtype_policy, name="masked_lm_head"
        )
        self.masked_lm_head.build((None, None, config.hidden_size))
        self.dimensions = min(config.vocab_size, self.truncate_dim or config.vocab_size)
        self.built = True

    def head_variables(self) -> dict[str, keras.Variable]:
        return self.masked_lm_head.named_variables()

    def pool(self, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        mask = features.get("input_mask", ops.ones_like(features["input_ids"]))

        # Row by row: the logits of a batch are its tokens times the vocabulary.
        def one(row: tuple[Tensor, Tensor]) -> Tensor:
            logits = self.masked_lm_head(row[0]) * ops.expand_dims(ops.cast(row[1], "float32"), -1)
            return sparse_weights(logits, self.pooling, self.activation)

        return ops.map(one, (hidden, mask))

    def get_config(self) -> dict[str, Any]:
        values = super().get_config() | {"activation": self.activation}
        return {name: value for name, value in values.items() if name not in ("normalize", "projections")}
