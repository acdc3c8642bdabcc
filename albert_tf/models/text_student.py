"""Knowledge distillation on plain text."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import gather_positions
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.base import HolderModel, current_part, share_of_batch
from albert_tf.models.heads import mean_pool, unit_length
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder

# Features of the encoder among those of a batch.
_OF_ENCODER = ("input_ids", "input_mask", "segment_ids")
# Loss terms of a text's vector.
OF_VECTORS = frozenset({"vectors", "similarities"})


@keras.saving.register_keras_serializable(package="albert_tf")
class TextStudent(HolderModel):
    """Trains the student `model` to match a teacher's representations of text.

    Call `learn_from` again after loading a saved student. The model returns errors by loss term, float32 [batch]; the
    loss is their weighted sum, averaged over the batch:

    - vectors: 1 - cosine of the text's vectors (an embedder's own, else the mean hidden state);
    - similarities: mean squared difference of the cosines between the whole batch's texts;
    - states: squared difference of a token's hidden states, divided by the square of the teacher's;
    - words: Kullback-Leibler divergence of the vocabulary distributions at `masked_lm_positions`.

    Only terms in `weights` are computed.
    """

    has_own_loss = True

    def __init__(self, model: Any, weights: dict[str, float], **kwargs: Any):
        super().__init__(**kwargs)
        self.model, self.lesson_weights = model, dict(weights)
        self._freeze_what_does_not_learn()
        self._told: Callable | None = None
        self._means = [keras.metrics.Mean(name=name) for name in self.lessons]
        self.built = True

    @property
    def encoder(self) -> AlbertEncoder:
        return self.model if isinstance(self.model, AlbertEncoder) else self.model.encoder

    @property
    def lessons(self) -> list[str]:
        return [name for name, weight in self.lesson_weights.items() if weight]

    def _freeze_what_does_not_learn(self) -> None:
        # After loading, only the model itself is marked as frozen, and TensorFlow ignores an assignment of the present
        # value: heads would train, and the optimizer's saved variables would be too few.
        self.model.trainable = True
        self.model.trainable = False
        self.encoder.trainable = True
        if self.encoder.pooler is not None:
            self.encoder.pooler.trainable = False
        if "words" in self.lessons:
            self.model.masked_lm_head.trainable = True

    def learn_from(self, teacher: keras.Model, steps: list[int]) -> None:
        """Sets the teacher, which is not saved; `steps` are indices of its hidden states that the student matches."""
        teacher.trainable = False
        # In a function, so that Keras does not track it.
        self._told = lambda features, lessons: representations(teacher, features, lessons, steps)

    surveyed = ("vectors", "told_vectors")

    @property
    def needs_survey(self) -> bool:
        return "similarities" in self.lessons

    def survey(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        own = representations(self.model, features, ["similarities"], training=True)["vectors"]
        return {"vectors": own, "told_vectors": self._told_of(features, ["similarities"])["vectors"]}

    def compute_output_shape(self, input_shape: Any = None) -> dict[str, tuple]:
        return dict.fromkeys(self.lessons, (None,))

    def call(self, features: dict[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        """Returns the errors against the teacher, by loss term."""
        given = representations(self.model, features, self.lessons, training=training)
        told = self._told_of(features, self.lessons)
        mask = ops.cast(features["input_mask"], "float32")
        return {name: _DISTANCES[name](given, told, mask) for name in self.lessons}

    def _told_of(self, features: dict[str, Tensor], lessons: list[str]) -> dict[str, Tensor]:
        assert self._told is not None, "learn_from() names the teacher"
        return {name: ops.stop_gradient(value) for name, value in self._told(features, lessons).items()}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        self.check_weights(sample_weight)
        loss = sum(self.lesson_weights[name] * ops.mean(distance) for name, distance in y_pred.items())
        return share_of_batch(loss)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        for mean in self._means:
            mean.update_state(y_pred[mean.name])
        return self.get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        results = super().get_metrics_result()
        return results | {"loss": sum(self.lesson_weights[mean.name] * results[mean.name] for mean in self._means)}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weights": self.lesson_weights}


def representations(
    model: Any, features: dict[str, Tensor], lessons: list[str], steps: list[int] | None = None, training: bool = False
) -> dict[str, Tensor]:
    """Computes the tensors that the loss terms `lessons` compare; `steps` are indices of hidden states, None for all.

    Returns:
        dict of what `lessons` need: vectors [batch, hidden_size] of length 1, float32; states [batch, steps, sequence,
        hidden_size]; logits float32 [batch, predictions, vocab_size].
    """
    encoder = model if isinstance(model, AlbertEncoder) else model.encoder
    read = {name: features[name] for name in _OF_ENCODER if name in features}
    outputs = encoder(read, training=training, output_hidden_states=True)
    found, states = {}, outputs["hidden_states"]
    if OF_VECTORS & set(lessons):
        found["vectors"] = vectors_of(model, outputs["sequence_output"], features)
    if "states" in lessons:
        found["states"] = ops.stack([states[i] for i in steps or range(len(states))], axis=1)
    if "words" in lessons:
        assert isinstance(model, AlbertPretrainer)
        hidden = gather_positions(outputs["sequence_output"], features["masked_lm_positions"])
        found["logits"] = model.masked_lm_head(hidden)
    return found


def vectors_of(model: Any, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
    """Returns text vectors of length 1: an embedder's own pooling, else the mean over tokens."""
    if isinstance(model, AlbertSentenceEmbedder):
        return unit_length(model.pool(hidden, features))
    return unit_length(mean_pool(hidden, features["input_mask"]))


def _off_in_direction(given: dict, told: dict, mask: Tensor) -> Tensor:
    return 1 - ops.sum(given["vectors"] * told["vectors"], axis=-1)


def _off_in_similarities(given: dict, told: dict, mask: Tensor) -> Tensor:
    pairs, part = [given["vectors"], told["vectors"]], current_part()
    everyone = pairs if part is None else [part.whole["vectors"], part.whole["told_vectors"]]
    one, other = (ops.matmul(rows, ops.transpose(all_rows)) for rows, all_rows in zip(pairs, everyone))
    # Both are 1 for a text with itself.
    others = ops.maximum(ops.cast(ops.shape(one)[1], "float32") - 1, 1)
    values = ops.sum(ops.square(one - other), axis=-1) / others
    # The rows of the whole batch are constants here. A pair of rows is in the loss twice; its gradient is that of both.
    return values if part is None else 2 * values - ops.stop_gradient(values)


def _off_in_states(given: dict, told: dict, mask: Tensor) -> Tensor:
    one, other = (ops.cast(states["states"], "float32") for states in (given, told))
    relative = ops.sum(ops.square(one - other), axis=-1) / (ops.sum(ops.square(other), axis=-1) + 1e-6)
    return _mean_over_tokens(ops.mean(relative, axis=1), mask)


def _off_in_words(given: dict, told: dict, mask: Tensor) -> Tensor:
    one, other = (ops.log_softmax(logits["logits"], axis=-1) for logits in (given, told))
    return ops.mean(ops.sum(ops.exp(other) * (other - one), axis=-1), axis=-1)


def _mean_over_tokens(values: Tensor, mask: Tensor) -> Tensor:
    return ops.sum(values * mask, axis=-1) / ops.maximum(ops.sum(mask, axis=-1), 1)


_DISTANCES = {
    "vectors": _off_in_direction,
    "similarities": _off_in_similarities,
    "states": _off_in_states,
    "words": _off_in_words,
}
