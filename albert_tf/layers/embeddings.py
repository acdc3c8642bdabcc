"""Token ids to vectors of hidden_size."""

from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.dense import dense, initializer, norm
from albert_tf.layers.dropout import dropout
from albert_tf.layers.features import check_length
from albert_tf.layers.halves import Owner
from albert_tf.layers.lookup import rows_at


class Embeddings(keras.layers.Layer, Owner):
    """Looks up words, positions and segments; sums, normalizes and projects them (modeling.py:480-628, 1083-1088)."""

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        word_only = config.factorization == "word"
        self.width = config.hidden_size if word_only else config.embedding_size
        self.layer_norm = self.projection = self.position_embeddings = self.token_type_embeddings = None
        if config.spec.has_norm:
            self.layer_norm = norm(config, dtype=self.dtype_policy, name="layer_norm")
        if config.is_projected:
            use_bias = config.use_bias and not word_only
            self.projection = dense(
                config, config.hidden_size, use_bias=use_bias, dtype=self.dtype_policy, name="projection"
            )
        self.hold(config, "embeddings")
        self.put_on_disk()

    def build(self, input_shape: Any = None) -> None:
        config, spec = self.config, self.config.spec
        tables = [("word_embeddings", config.vocab_size, config.embedding_size)]
        if spec.has_types:
            tables.append(("token_type_embeddings", config.type_vocab_size, self.width))
        if spec.has_positions:
            tables.append(("position_embeddings", config.max_position_embeddings, self.width))
        for name, rows, width in tables:
            # Not autocast: rows are cast after the lookup, not the table before it.
            table = self.add_weight(name=name, shape=(rows, width), initializer=initializer(config), autocast=False)
            setattr(self, name, table)
        self.build_held(config)
        if self.layer_norm is not None:
            self.layer_norm.build((None, self.width))
        if self.projection is not None:
            self.projection.build((None, config.embedding_size))

    def compute_output_shape(self, input_shape: Any = None) -> tuple[tuple, tuple]:
        return (None, None, self.width), (None, None, self.config.hidden_size)

    def call(
        self,
        input_ids: Tensor,
        segment_ids: Tensor = None,
        position_ids: Tensor = None,
        seed: Tensor = None,
        rows: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeds a batch.

        Args:
            input_ids: int32 [batch, sequence].
            segment_ids: int32 [batch, sequence] (default: all 0).
            position_ids: int32 [batch, sequence], counted from 0 whatever `position_offset` is (default: 0, 1, ...).
            seed: uint32 [2] that the dropout mask follows from; None outside training.
            rows: the batch's PaddedRows, which may add to the words; None: they do not.

        Returns:
            The normalized sum [batch, sequence, embedding_size] (hidden_size where only words are factorized), and
            the encoder's input [batch, sequence, hidden_size].

        Raises:
            UserError: the sequence is longer than the positions (where its length is known when the graph is built), or
                an id is out of range: see `rows_at`.
        """
        words = ops.cast(rows_at(self.word_embeddings, input_ids, "input_ids"), self.compute_dtype)
        words = words if rows is None else rows.words(words)
        word_only = self.config.factorization == "word"
        if word_only and self.projection is not None:
            words = self.projection(words)
        if self.token_type_embeddings is not None:
            if segment_ids is None or self.config.type_vocab_size == 1:
                # RoBERTa's one type; rows say all the same where their second text begins.
                segment_ids = ops.zeros_like(input_ids)
            others = rows_at(self.token_type_embeddings, segment_ids, "segment_ids")
            if self.position_embeddings is not None:
                others = others + self._positions(ops.shape(input_ids)[1], position_ids)
            words = words + ops.cast(others, words.dtype)
        elif self.position_embeddings is not None:
            words = words + ops.cast(self._positions(ops.shape(input_ids)[1], position_ids), words.dtype)
        normalized = words if self.layer_norm is None else self.layer_norm(words)
        dropped = dropout(normalized, self.config.hidden_dropout_prob, seed)
        if word_only or self.projection is None:
            return normalized, dropped
        return normalized, self.projection(dropped)

    def _positions(self, length: Any, position_ids: Tensor) -> Tensor:
        offset = self.config.position_offset
        if position_ids is not None:
            return rows_at(self.position_embeddings, position_ids, "position_ids", first=offset)
        check_length(length, self.config)
        return self.position_embeddings[offset : offset + length]
