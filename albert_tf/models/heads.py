"""Heads on an encoder, and pooling."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import LayerNorm, ResumableDropout, activation, gather_positions
from albert_tf.config import AlbertConfig
from albert_tf.layers.weights import Embeddings, dense, initializer
from tfrecords.answers.spans import IMPOSSIBLE

# Pooling methods.
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")


def mean_pool(sequence_output: Tensor, mask: Tensor) -> Tensor:
    """Averages [batch, sequence, hidden_size] where `mask` is 1: float32 [batch, hidden_size]; 0 for an empty mask."""
    weights = ops.expand_dims(ops.cast(mask, "float32"), -1)
    return ops.sum(ops.cast(sequence_output, "float32") * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def pool(sequence_output: Tensor, mask: Tensor, first: Tensor, pooling: str) -> Tensor:
    """Pools vectors [batch, sequence, hidden_size] into one per row: float32 [batch, hidden_size].

    `mask` is 1 at tokens; `first` are the vectors of [CLS]. `pooling` is a name of sentence-transformers:
    "mean_sqrt_len" is the tokens' sum divided by the square root of their number, "weightedmean" the mean weighted by
    position, from 1.
    """
    if pooling == "mean":
        return mean_pool(sequence_output, mask)
    if pooling == "cls":
        return ops.cast(first, "float32")
    sequence, weights = ops.cast(sequence_output, "float32"), ops.cast(mask, "float32")
    if pooling == "max":
        return ops.max(ops.where(ops.expand_dims(weights, -1) > 0, sequence, -1e9), axis=1)
    places = ops.cumsum(weights, axis=1) * weights
    if pooling == "weightedmean":
        weights = places / ops.maximum(ops.sum(places, axis=1, keepdims=True), 1.0)
    elif pooling == "lasttoken":
        weights = ops.cast((places > 0) & (places == ops.max(places, axis=1, keepdims=True)), "float32")
    else:
        weights = weights / ops.sqrt(ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1.0))
    return ops.sum(sequence * ops.expand_dims(weights, -1), axis=1)


def unit_length(vectors: Tensor) -> Tensor:
    """Scales vectors [batch, hidden_size] to length 1; zero vectors stay zero."""
    return vectors / ops.maximum(ops.norm(vectors, axis=-1, keepdims=True), 1e-12)


def vocabulary_logits(words: Tensor, table: Tensor, output_bias: Tensor, projection: Tensor = None) -> Tensor:
    """Scores the vocabulary for vectors [words, width]: float32 [words, vocab_size].

    `table` are the word embeddings. `projection`, [embedding_size, width], is given if these sizes differ
    (brightmart/albert_zh).
    """
    if projection is not None:
        words = ops.matmul(words, ops.transpose(ops.cast(projection, words.dtype)))
    logits = ops.cast(ops.matmul(words, ops.transpose(ops.cast(table, words.dtype))), "float32")
    return logits if output_bias is None else logits + ops.cast(output_bias, "float32")


class TiedLMHead(keras.layers.Layer):
    """Scores the vocabulary with the transposed word embeddings, which the encoder owns, and a bias.

    Without `tie_word_embeddings`, the head has a table of its own.
    """

    def __init__(self, config: AlbertConfig, embeddings: Embeddings, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        self._embeddings = lambda: embeddings
        self.goes_back, self.own_words = embeddings.projection is not None, None
        self.output_bias: Any = None

    def build(self, input_shape: Any = None) -> None:
        if not self.config.tie_word_embeddings:
            shape = self.config.vocab_size, self.config.embedding_size
            self.own_words = self.add_weight(
                name="decoder", shape=shape, initializer=initializer(self.config), autocast=False
            )
        if self.config.use_bias or self.config.word_transform:
            self.output_bias = self.add_weight(name="output_bias", shape=(self.config.vocab_size,), initializer="zeros")

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape[:-1], self.config.vocab_size)

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers that have weights, by their names in checkpoints."""
        return {}

    def named_variables(self) -> dict[str, keras.Variable]:
        """Returns the head's variables by their names in checkpoints."""
        own = {"masked_lm/output_bias": self.output_bias, "masked_lm/decoder": self.own_words}
        variables = {name: variable for name, variable in own.items() if variable is not None}
        for name, layer in self.parts().items():
            variables |= {f"masked_lm/{name}/{variable.name}": variable for variable in layer.variables}
        return variables

    def transformed(self, vectors: Tensor) -> Tensor:
        return vectors

    @property
    def word_table(self) -> Any:
        """The table [vocab_size, embedding_size] that scores words."""
        return self._embeddings().word_embeddings if self.own_words is None else self.own_words

    def call(self, vectors: Tensor) -> Tensor:
        embeddings = self._embeddings()
        leading = ops.shape(vectors)[:-1]
        words = self.transformed(ops.reshape(vectors, (-1, self.config.hidden_size)))
        projection = ops.cast(embeddings.projection.kernel, words.dtype) if self.goes_back else None
        logits = vocabulary_logits(words, self.word_table, self.output_bias, projection)
        return ops.reshape(logits, (*leading, self.config.vocab_size))


class MaskedLMHead(TiedLMHead):
    """Scores the vocabulary at masked positions (run_pretraining.py:294-337)."""

    def __init__(self, config: AlbertConfig, embeddings: Embeddings, **kwargs: Any):
        super().__init__(config, embeddings, **kwargs)
        # brightmart/albert_zh transforms at hidden_size, then applies its transposed projection.
        self.goes_back = self.goes_back and config.factorization == "word"
        self.width = embeddings.width
        self.dense: Any = None
        self.layer_norm: Any = None
        if not config.word_transform:
            return
        # As of the pooler.
        act, is_bare = (config.pooler_act, True) if config.pooler_norm else (config.hidden_act, False)
        own = {"dtype": self.dtype_policy, "use_bias": not is_bare, "name": "dense"}
        self.dense = dense(config, self.width, activation=activation(act), **own)
        has_bias = config.use_bias or not is_bare
        self.layer_norm = LayerNorm(config.layer_norm_eps, has_bias, dtype=self.dtype_policy, name="layer_norm")

    def build(self, input_shape: Any = None) -> None:
        if self.dense is not None:
            self.dense.build((None, self.config.hidden_size))
            self.layer_norm.build((None, self.width))
        super().build(input_shape)

    def parts(self) -> dict[str, keras.layers.Layer]:
        return {} if self.dense is None else {"dense": self.dense, "layer_norm": self.layer_norm}

    def transformed(self, vectors: Tensor) -> Tensor:
        return vectors if self.dense is None else self.layer_norm(self.dense(vectors))


class JointSpanHead(keras.layers.Layer):
    """Scores starts, ends given a start, and answerability (squad_utils.py:1428-1575)."""

    def __init__(self, config: AlbertConfig, dropout: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        own = {"dtype": self.dtype_policy}
        self.start = dense(config, 1, name="start", **own)
        self.end_hidden = dense(config, config.hidden_size, activation="tanh", name="end_hidden", **own)
        self.end_norm = LayerNorm(config.layer_norm_eps, name="end_norm", **own)
        self.end = dense(config, 1, name="end", **own)
        self.answer_hidden = dense(config, config.hidden_size, activation="tanh", name="answer_hidden", **own)
        self.dropout = ResumableDropout(dropout, name="dropout", **own)
        self.answer = dense(config, 1, use_bias=False, name="answer", **own)

    def build(self, input_shape: Any = None) -> None:
        width = self.config.hidden_size
        for layer in (self.start, self.end_norm, self.end, self.answer):
            layer.build((None, width))
        for layer in (self.end_hidden, self.answer_hidden):
            layer.build((None, 2 * width))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape[:-1]

    def parts(self) -> dict[str, keras.layers.Layer]:
        names = ("start", "end_hidden", "end_norm", "end", "answer_hidden", "answer")
        return {name: getattr(self, name) for name in names}

    def start_logits(self, hidden: Tensor) -> Tensor:
        return self.start(hidden)[..., 0]

    def end_logits(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """Scores ends for each of `starts`, int32 [batch, starts]: float32 [batch, starts, sequence]."""
        count, length = ops.shape(starts)[1], ops.shape(hidden)[1]
        given = gather_positions(hidden, starts, "start_positions")[:, :, None]
        pairs = [ops.repeat(hidden[:, None], count, axis=1), ops.repeat(given, length, axis=2)]
        ends = self.end(self.end_norm(self.end_hidden(ops.concatenate(pairs, axis=-1))))
        return ops.cast(ends[..., 0], "float32")

    def answerable_logits(
        self, hidden: Tensor, start_probabilities: Tensor, training: bool = False, summary: Tensor = None
    ) -> Tensor:
        """Returns float32 [batch], above 0 if there is no answer; `summary` are the vectors of [CLS]."""
        expected = ops.sum(hidden * start_probabilities[:, :, None], axis=1)
        summary = hidden[:, 0] if summary is None else summary
        answer = self.answer_hidden(ops.concatenate([expected, summary], axis=-1))
        return ops.cast(self.answer(self.dropout(answer, training=training))[:, 0], "float32")


class SpanScores(NamedTuple):
    """Log-probabilities of an answer's start and end over the allowed positions.

    Attributes:
        start_log_probs: float32 [batch, sequence].
        end_log_probs: maps starts, int32 [batch, starts], to float32 [batch, starts, sequence]; [batch, 1, sequence] if
            ends do not depend on the start.
        answerable_logits: float32 [batch], above 0 if an answer is unlikely; None for a plain head.
    """

    start_log_probs: Tensor
    end_log_probs: Callable
    answerable_logits: Tensor | None


def span_scores(
    head: JointSpanHead | keras.layers.Dense,
    hidden: Tensor,
    allowed: Tensor,
    training: bool = False,
    summary: Tensor = None,
) -> SpanScores:
    """Scores starts and ends with a JointSpanHead, or with a dense layer of two outputs.

    `hidden` is [batch, sequence, hidden_size]; `allowed`, bool [batch, sequence], marks possible starts and ends.
    """
    if isinstance(head, JointSpanHead):
        starts = _log_probs(head.start_logits(hidden), allowed)
        expected = ops.cast(ops.exp(starts), hidden.dtype)
        ends = lambda given: _log_probs(head.end_logits(hidden, given), allowed[:, None])  # noqa: E731
        return SpanScores(starts, ends, head.answerable_logits(hidden, expected, training, summary))
    logits = head(hidden)
    ends = _log_probs(logits[..., 1], allowed)[:, None]
    return SpanScores(_log_probs(logits[..., 0], allowed), lambda given: ends, None)


def search_spans(
    scores: SpanScores,
    start_top: int,
    count: int,
    max_answer_length: int,
    may_start: Tensor = None,
    may_end: Tensor = None,
) -> dict[str, Tensor]:
    """Returns the best spans from the `start_top` likeliest starts; see `top_spans`."""
    starts, ends = scores.start_log_probs, scores.end_log_probs
    starts = starts if may_start is None else ops.where(may_start, starts, IMPOSSIBLE)
    start_top, start_index = ops.top_k(starts, k=_at_most(start_top, ops.shape(starts)[1]))
    end_scores = ends(start_index)
    if may_end is not None:
        end_scores = ops.where(may_end[:, None], end_scores, IMPOSSIBLE)
    return top_spans(start_top, start_index, end_scores, count, max_answer_length)


def top_spans(
    start_top: Tensor, start_index: Tensor, end_scores: Tensor, count: int, max_answer_length: int
) -> dict[str, Tensor]:
    """Returns the `count` spans with the highest start + end score, of at most `max_answer_length` tokens.

    `start_top` and `start_index` are scores and positions of starts, [batch, starts]; `end_scores` are [batch, starts
    or 1, sequence].

    Returns:
        dict of int32 start_index, end_index and float32 score, each [batch, count], best first. Missing spans score
        about -1e30.
    """
    starts, length = ops.shape(start_index)[1], ops.shape(end_scores)[2]
    positions = ops.arange(length, dtype="int32")[None, None, :]
    first = ops.cast(start_index, "int32")[:, :, None]
    legal = ops.logical_and(positions >= first, positions < first + max_answer_length)
    scores = ops.where(legal, start_top[:, :, None] + end_scores, IMPOSSIBLE)
    best, flat = ops.top_k(ops.reshape(scores, (-1, starts * length)), k=_at_most(count, starts * length))
    flat = ops.cast(flat, "int32")
    start = ops.take_along_axis(ops.cast(start_index, "int32"), flat // length, axis=1)
    return {"start_index": start, "end_index": flat % length, "score": best}


def _log_probs(logits: Tensor, allowed: Tensor) -> Tensor:
    return ops.log_softmax(ops.where(allowed, ops.cast(logits, "float32"), IMPOSSIBLE), axis=-1)


def _at_most(count: int, size: Any) -> Any:
    return min(count, size) if isinstance(size, int) else ops.minimum(count, size)
