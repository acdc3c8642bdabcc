"""Extractive question answering: SQuAD 1.1 and SQuAD 2."""

from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import check_range, or_nan
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name, summary_columns, summary_tokens
from albert_tf.layers.weights import dense
from albert_tf.models.base import EncoderModel, share_of_batch, variables_of
from albert_tf.models.heads import JointSpanHead, search_spans, span_scores


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertSpanPredictor(EncoderModel):
    """Predicts an answer's start and end in a passage and, with `joint`, whether there is one.

    Loss and metrics are built in: `compile(optimizer=...)`, then `fit` on feature dicts with the labels.

    Args:
        joint: whether the head scores ends given a start, and answerability given the expected start
            (google-research/albert squad_utils.py:1428-1575); otherwise it is a dense layer with two outputs.
        start_top, end_top: the search returns `start_top` * `end_top` spans from the `start_top` best starts.
        max_answer_length: maximal number of tokens in a span.
        dropout: rate before the answerability logit.

    >>> import numpy as np
    >>> model = AlbertSpanPredictor(AlbertConfig.named("albert_tiny"), start_top=2, end_top=2)
    >>> ids, segments = np.array([[101, 872, 102, 2769, 1962, 102]]), np.array([[0, 0, 0, 1, 1, 1]])
    >>> model.predict({"input_ids": ids, "segment_ids": segments}, verbose=0)["spans"]["score"].shape
    (1, 4)
    """

    graph_arguments = {"search": True}
    has_own_loss = True

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        joint: bool = False,
        start_top: int = 5,
        end_top: int = 5,
        max_answer_length: int = 30,
        dropout: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(encoder, pooler=getattr(encoder, "config", encoder).pooler_norm, **kwargs)
        self.joint, self.start_top, self.end_top = joint, start_top, end_top
        self.max_answer_length, self.dropout = max_answer_length, dropout
        if joint:
            self.head = JointSpanHead(self.encoder.config, dropout, dtype=self.dtype_policy, name="head")
        else:
            self.head = dense(self.encoder.config, 2, dtype=self.dtype_policy, name="head")
        names = ["start_accuracy", "end_accuracy"] + (["answerable_accuracy"] if joint else [])
        self._means = [keras.metrics.Mean(name=name) for name in names]
        self.build((None, None))

    def build(self, input_shape: Any = None) -> None:
        self.head.build((None, None, self.encoder.config.hidden_size))

    def head_variables(self) -> dict[str, keras.Variable]:
        parts = self.head.parts() if self.joint else {"span": self.head}
        return {name: value for part, layer in parts.items() for name, value in variables_of(part, layer).items()}

    def call(self, features: Any, training: bool = False, search: bool | None = None) -> dict[str, Any]:
        """Scores all positions and searches for the best spans.

        Args:
            features: those of AlbertEncoder, and
                p_mask [batch, sequence], 1 where answers are impossible; padding always counts so (default: all
                but segment 1 and [CLS]);
                start_mask [batch, sequence], 1 where the search must not start a span (default: none);
                start_positions, end_positions int32 [batch] or [batch, 1]: the labels, 0 without an answer;
                is_impossible [batch] or [batch, 1], with `joint`: 1 without an answer.
            training: enables dropout.
            search: whether to search for spans; None: outside training, and always in a functional model.

        Returns:
            dict of float32 start_log_probs [batch, sequence]; end_log_probs [batch, sequence], which with `joint` need
            start_positions; answerable_logits [batch] with `joint`, above 0 if an answer is unlikely; and, if
            searched, spans, at most start_top * end_top: see `top_spans`.
        """
        features = by_name(features)
        hidden = self.encoder.of_tokens(self.encoder(features, training=training)["sequence_output"])
        config = self.encoder.config
        summary = summary_tokens(hidden, features, config)
        scores = span_scores(self.head, hidden, _allowed(features, config), training, summary)
        outputs = {"start_log_probs": scores.start_log_probs}
        if self.joint:
            outputs["answerable_logits"] = scores.answerable_logits
        if not self.joint or "start_positions" in features:
            # The plain head's ends accept any start.
            starts = features.get("start_positions", features["input_ids"][:, 0])
            outputs["end_log_probs"] = scores.end_log_probs(ops.reshape(ops.cast(starts, "int32"), (-1, 1)))[:, 0]
        if search is False or (search is None and training):
            return outputs
        blocked = features.get("start_mask")
        may_start = None if blocked is None else ops.logical_not(ops.cast(blocked, "bool"))
        count = self.start_top * self.end_top
        return outputs | {"spans": search_spans(scores, self.start_top, count, self.max_answer_length, may_start)}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        """Returns half the sum of start, end and, with `joint`, answerability loss (squad_utils.py:1576-1640)."""
        self.check_weights(sample_weight)
        loss = (_nll(x, y_pred, "start") + _nll(x, y_pred, "end")) / 2
        if self.joint:
            labels = ops.reshape(ops.cast(x["is_impossible"], "float32"), (-1,))
            logits = y_pred["answerable_logits"]
            loss = loss + 0.5 * ops.mean(ops.binary_crossentropy(labels, logits, from_logits=True))
        return self.with_added_losses(share_of_batch(loss))

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        for mean, end in zip(self._means, ("start", "end")):
            guess = ops.argmax(y_pred[f"{end}_log_probs"], axis=-1)
            mean.update_state(_equal(guess, x[f"{end}_positions"]))
        if self.joint:
            self._means[2].update_state(_equal(y_pred["answerable_logits"] > 0, x["is_impossible"]))
        return self.get_metrics_result()

    def get_config(self) -> dict[str, Any]:
        names = ("joint", "start_top", "end_top", "max_answer_length", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _allowed(features: Any, config: AlbertConfig) -> Tensor:
    ids = features["input_ids"]
    tokens = ops.cast(features.get("input_mask", ops.ones_like(ids)), "bool")
    if "p_mask" in features:
        # A batch pads every feature with zeros, this one too.
        return ops.logical_and(ops.logical_not(ops.cast(features["p_mask"], "bool")), tokens)
    passage = ops.equal(features.get("segment_ids", ops.ones_like(ids)), 1)
    is_summary = ops.equal(ops.arange(ops.shape(ids)[1])[None], summary_columns(features, config)[:, None])
    return ops.logical_and(ops.logical_or(passage, is_summary), tokens)


def _nll(features: Any, predictions: dict[str, Tensor], end: str) -> Tensor:
    labels = ops.reshape(ops.cast(features[f"{end}_positions"], "int32"), (-1, 1))
    log_probs = predictions[f"{end}_log_probs"]
    check_range(labels, ops.shape(log_probs)[1], f"{end}_positions")
    return -ops.mean(or_nan(ops.take_along_axis(log_probs, labels, axis=1), labels, ops.shape(log_probs)[1]))


def _equal(guesses: Tensor, labels: Tensor) -> Tensor:
    return ops.cast(ops.equal(ops.cast(guesses, "int32"), ops.cast(ops.reshape(labels, (-1,)), "int32")), "float32")
