"""Token ids to vectors of hidden_size."""

from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.dense import dense, initializer, norm
from albert_tf.layers.dropout import dropout
from albert_tf.layers.features import check_length
from albert_tf.layers.lookup import rows_at


class Embeddings(keras.layers.Layer):
    """Looks up words, positions and segments; sums, normalises and projects them (modeling.py:480-628, 1083-1088).

    Where positions are relative there are words alone, not normalised, and the vector of a target whose word is not to
    be known (zihangdai/xlnet modeling.py, mask_emb).
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        word_only = config.factorization == "word"
        self.width = config.hidden_size if word_only else config.embedding_size
        self.is_relative = config.position_type == "relative"
        self.layer_norm: Any = None
        if not self.is_relative:
            self.layer_norm = norm(config, dtype=self.dtype_policy, name="layer_norm")
        self.position_embeddings: Any = None
        self.token_type_embeddings: Any = None
        self.mask_embedding: Any = None
        self.projection = None
        if config.is_projected:
            use_bias = config.use_bias and not word_only
            self.projection = dense(
                config, config.hidden_size, use_bias=use_bias, dtype=self.dtype_policy, name="projection"
            )

    def build(self, input_shape: Any = None) -> None:
        config = self.config
        tables = [("word_embeddings", config.vocab_size, config.embedding_size)]
        if not self.is_relative:
            tables.append(("token_type_embeddings", config.type_vocab_size, self.width))
        if config.position_type == "absolute":
            tables.append(("position_embeddings", config.max_position_embeddings, self.width))
        for name, rows, width in tables:
            # Not autocast: rows are cast after the lookup, not the table before it.
            table = self.add_weight(name=name, shape=(rows, width), initializer=initializer(config), autocast=False)
            setattr(self, name, table)
        if self.is_relative:
            self.mask_embedding = self.add_weight(
                name="mask_embedding", shape=(config.embedding_size,), initializer=initializer(config)
            )
        else:
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
        queries: Tensor = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeds a batch.

        Args:
            input_ids: int32 [batch, sequence].
            segment_ids: int32 [batch, sequence] (default: all 0).
            position_ids: int32 [batch, sequence], counted from 0 whatever `position_offset` is (default: 0, 1, ...);
                without effect where positions are rotary.
            seed: uint32 [2] that the dropout mask follows from; None outside training.
            queries: how many targets follow the tokens of a row, where positions are relative; None: there are none.

        Returns:
            The normalised sum [batch, sequence, embedding_size] (hidden_size where only words are factorised), and
            the encoder's input [batch, sequence, hidden_size].

        Raises:
            UserError: the sequence is longer than the positions (where its length is known when the graph is built), or
                an id is out of range: see `rows_at`.
        """
        normalised = self.looked_up(input_ids, segment_ids, position_ids, queries)
        dropped = dropout(normalised, self.config.hidden_dropout_prob, seed)
        if self.config.factorization == "word" or self.projection is None:
            return normalised, dropped
        return normalised, self.projection(dropped)

    def looked_up(
        self, input_ids: Tensor, segment_ids: Tensor = None, position_ids: Tensor = None, queries: Tensor = None
    ) -> Tensor:
        """Gives the normalised sum that `call` gives first."""
        words = ops.cast(rows_at(self.word_embeddings, input_ids, "input_ids"), self.compute_dtype)
        word_only = self.config.factorization == "word"
        if queries is not None:
            masks = ops.broadcast_to(self.mask_embedding, (ops.shape(words)[0], queries, self.config.embedding_size))
            words = ops.concatenate([words, ops.cast(masks, words.dtype)], axis=1)
        if word_only and self.projection is not None:
            words = self.projection(words)
        return words if self.is_relative else self._normalised(words, input_ids, segment_ids, position_ids)

    def _normalised(self, words: Tensor, input_ids: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """The layer norm of the words and what is added to them: [batch, sequence, width]."""
        if segment_ids is None or self.config.type_vocab_size == 1:
            # RoBERTa's one type; rows say all the same where their second text begins.
            segment_ids = ops.zeros_like(input_ids)
        others = rows_at(self.token_type_embeddings, segment_ids, "segment_ids")
        if self.config.position_type == "absolute":
            others = others + self._positions(ops.shape(input_ids)[1], position_ids)
        return self.layer_norm(words + ops.cast(others, words.dtype))

    def _positions(self, length: Any, position_ids: Tensor) -> Tensor:
        offset = self.config.position_offset
        if position_ids is not None:
            return rows_at(self.position_embeddings, position_ids, "position_ids", first=offset)
        check_length(length, self.config)
        return self.position_embeddings[offset : offset + length]
