from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name, summary_tokens
from albert_tf.models.base import EncoderModel, variables_of
from albert_tf.models.exit_rules import ExitRule, check_exits, leave, movements, tokens_and_threshold
from albert_tf.models.heads import POOLINGS, MaskedLMHead, pool, unit_length
from tfrecords.base.errors import UserError

SPARSE_POOLINGS = ("splade_max", "splade_sum")
# How often a weight is damped by log(1 + weight), by sentence-transformers' name.
SPARSE_ACTIVATIONS = {"relu": 1, "log1p_relu": 2}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertSentenceEmbedder(EncoderModel):
    """Embeds a text as one vector, float32 [batch, dimensions], from the features of AlbertEncoder.

    Args:
        pooling: "mean" over the tokens, "cls" for the last hidden state of [CLS], or another of POOLINGS (see
            `albert_tf.models.heads.pool`); several joined by "+" are concatenated.
        normalize: whether vectors have length 1, so that dot products are cosines.
        projections: `units`, `activation` and `use_bias` of each dense layer between pooling and normalizing.
        truncate_dim: how many of a vector's first numbers are kept, after normalizing; 0: all.

    Raises:
        UserError: an unknown pooling.

    >>> import numpy as np
    >>> model = AlbertSentenceEmbedder(AlbertConfig.named("albert_tiny"))
    >>> vectors = model.predict({"input_ids": np.array([[101, 2769, 102], [101, 872, 102]])}, verbose=0)
    >>> vectors.shape
    (2, 312)
    >>> bool(np.allclose(np.linalg.norm(vectors, axis=1), 1))
    True
    """

    known_poolings: tuple[str, ...] = POOLINGS

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        pooling: str = "mean",
        normalize: bool = True,
        projections: Sequence[Mapping[str, Any]] = (),
        truncate_dim: int = 0,
        **kwargs: Any,
    ):
        super().__init__(encoder, pooler=False, **kwargs)
        if unknown := [name for name in pooling.split("+") if name not in self.known_poolings]:
            raise UserError(f"pooling '{unknown[0]}' is none of {', '.join(self.known_poolings)}")
        self.pooling, self.normalize, self.truncate_dim = pooling, normalize, truncate_dim
        self.projections = [
            keras.layers.Dense(**options, dtype="float32", name=f"projection_{number}")
            for number, options in enumerate(projections)
        ]
        self.build((None, None))

    def build(self, input_shape: Any = None) -> None:
        width = self.encoder.config.hidden_size * len(self.poolings)
        for layer in self.projections:
            layer.build((None, width))
            width = layer.units
        self.dimensions = min(width, self.truncate_dim or width)
        self.built = True

    @property
    def poolings(self) -> list[str]:
        return self.pooling.split("+")

    def head_variables(self) -> dict[str, keras.Variable]:
        return {name: value for layer in self.projections for name, value in variables_of(layer.name, layer).items()}

    def call(self, features: Any, training: bool = False) -> Tensor:
        return self._pooled(self.encoder(features, training=training)["sequence_output"], by_name(features))

    def answer_early(self, features: Any, threshold: Any) -> dict[str, Tensor]:
        """Returns the results of an early-exit export ("movement"), but computes all steps.

        `threshold` is a number or float32 [batch]; see ExitRule.

        Returns:
            dict of embedding, as from `call`, and steps, int32 [batch], after which each row exited.

        Raises:
            UserError: an extension of the encoder excludes early exits.
        """
        check_exits(self.encoder.config)
        rule, features = ExitRule("states", "movement"), by_name(features)
        states = self.encoder(features, output_hidden_states=True)["hidden_states"]
        mask, threshold = tokens_and_threshold(features, threshold)
        left = leave(rule, states[1:], movements(rule, states, mask), mask, threshold)
        return {"embedding": self._pooled(left["logits"], features), "steps": left["steps"]}

    def _pooled(self, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        vectors = self.pool(hidden, features)
        return (unit_length(vectors) if self.normalize else vectors)[:, : self.dimensions]

    def pool(self, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Pools hidden states [batch, sequence, hidden_size], without normalizing: float32 [batch, dimensions]."""
        first = summary_tokens(hidden, features, self.encoder.config) if "cls" in self.poolings else None
        mask = features.get("input_mask", ops.ones_like(features["input_ids"]))
        pooled = [pool(hidden, mask, first, name) for name in self.poolings]
        vectors = pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)
        for layer in self.projections:
            vectors = layer(vectors)
        return vectors

    def get_config(self) -> dict[str, Any]:
        values = {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}
        projections = [
            {
                "units": layer.units,
                "activation": keras.activations.serialize(layer.activation),
                "use_bias": layer.use_bias,
            }
            for layer in self.projections
        ]
        values |= {"projections": projections} if projections else {}
        return values | ({"truncate_dim": self.truncate_dim} if self.truncate_dim else {})


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
        query_length: tokens of a query that `Loaded.encode_query` reads, to weigh each by `query_weights`, float32
            [vocab_size]; 0: queries are read as documents are.

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
        query_length: int = 0,
        **kwargs: Any,
    ):
        if kwargs.get("truncate_dim"):
            raise UserError("truncate_dim would keep the first words of the vocabulary alone; leave it out")
        if activation not in SPARSE_ACTIVATIONS:
            raise UserError(f"activation '{activation}' is none of {', '.join(SPARSE_ACTIVATIONS)}")
        self.activation, self.query_length = activation, query_length
        super().__init__(encoder, pooling, False, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        config = self.encoder.config
        self.masked_lm_head = MaskedLMHead(
            config, self.encoder.embeddings, dtype=self.dtype_policy, name="masked_lm_head"
        )
        self.masked_lm_head.build((None, None, config.hidden_size))
        self.dimensions = config.vocab_size
        if self.query_length:
            self.query_weights = self.add_weight((self.dimensions,), trainable=False, name="query_weights")
        self.built = True

    def head_variables(self) -> dict[str, keras.Variable]:
        table = {"query_weights": self.query_weights} if self.query_length else {}
        return self.masked_lm_head.named_variables() | table

    def pool(self, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        mask = features.get("input_mask", ops.ones_like(features["input_ids"]))

        # Row by row: the logits of a batch are its tokens times the vocabulary.
        def one(row: tuple[Tensor, Tensor]) -> Tensor:
            logits = self.masked_lm_head(row[0]) * ops.expand_dims(ops.cast(row[1], "float32"), -1)
            return sparse_weights(logits, self.pooling, self.activation)

        return ops.map(one, (hidden, mask))

    def get_config(self) -> dict[str, Any]:
        values = super().get_config() | {"activation": self.activation}
        values |= {"query_length": self.query_length} if self.query_length else {}
        return {name: value for name, value in values.items() if name not in ("normalize", "projections")}
