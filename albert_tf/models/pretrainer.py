from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import gather_positions, or_nan
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name
from albert_tf.layers.weights import dense
from albert_tf.models.base import Divisors, EncoderModel, current_part, variables_of
from albert_tf.models.heads import MaskedLMHead, TiedLMHead
from tfrecords.base.errors import refuse

PAIR_TASKS = ("sop", "nsp", None)


class FiniteMean(keras.metrics.Mean):
    """Averages finite values; NaN if none."""

    def update_state(self, values: Tensor, sample_weight: Tensor) -> None:
        finite = ops.isfinite(values * sample_weight)
        super().update_state(ops.where(finite, values, 0.0), ops.where(finite, sample_weight, 0.0))

    def result(self) -> Tensor:
        return self.total / self.count


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertPretrainer(EncoderModel):
    """Predicts masked words and, with a pair task, whether two texts follow each other.

    Loss and metrics are built in: `compile(optimizer=...)`, then `fit` on a dataset of feature dicts.

    Args:
        pair_task: "sop" (sentence order), "nsp" (next sentence), or None or "none".

    Raises:
        UserError: an unknown pair task, or any for an encoder without a pooler.

    >>> import numpy as np
    >>> model = AlbertPretrainer(AlbertConfig.named("albert_tiny"))
    >>> features = {"input_ids": np.array([[101, 103, 1962, 102]]), "masked_lm_positions": np.array([[1]])}
    >>> {name: logits.shape for name, logits in model.predict(features, verbose=0).items()}
    {'masked_lm_logits': (1, 1, 21128), 'pair_logits': (1, 2)}
    """

    feature_names = (*EncoderModel.feature_names, "masked_lm_positions")
    learning_rate = 1e-4
    has_own_loss = True
    head_class: type[TiedLMHead] = MaskedLMHead
    # Added to the word count in the loss's denominator.
    loss_epsilon = 1e-5

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, pair_task: str | None = "sop", **kwargs: Any):
        if pair_task == "none":
            pair_task = None
        super().__init__(encoder, pooler=pair_task is not None, **kwargs)
        encoder = self.encoder
        refuse({
            f"pair_task '{pair_task}' is none of sop, nsp, none":
                pair_task not in PAIR_TASKS,
            f"pair_task '{pair_task}' needs an encoder with a pooler":
                pair_task is not None and encoder.pooler is None,
        })  # fmt: skip
        self.pair_task = pair_task
        config = encoder.config
        self.masked_lm_head = self.head_class(
            config, encoder.embeddings, dtype=self.dtype_policy, name="masked_lm_head"
        )
        self.pair_head = None
        names = ["masked_lm_loss", "masked_lm_accuracy"]
        if pair_task is not None:
            self.pair_head = dense(config, 2, dtype=self.dtype_policy, name="pair_head")
            prefix = "sentence_order" if pair_task == "sop" else "next_sentence"
            names += [f"{prefix}_loss", f"{prefix}_accuracy"]
        self._means = [FiniteMean(name=name) for name in names]
        self.build((None, None))

    def build(self, input_shape: Any = None) -> None:
        self.masked_lm_head.build((None, None, self.encoder.config.hidden_size))
        if self.pair_head is not None:
            self.pair_head.build((None, self.encoder.config.hidden_size))

    def head_variables(self) -> dict[str, keras.Variable]:
        variables = self.masked_lm_head.named_variables()
        return variables if self.pair_head is None else variables | variables_of("pair", self.pair_head)

    def call(self, features: Any, training: bool = False) -> dict[str, Tensor]:
        """Scores the vocabulary at masked positions, and the pair's labels.

        `features` are those of AlbertEncoder, and masked_lm_positions int32 [batch, predictions] (default: all
        positions).

        Returns:
            dict of float32 masked_lm_logits [batch, predictions, vocab_size] and, with a pair task, pair_logits [batch,
            2], or [batch, examples per row, 2] for packed rows.
        """
        features = by_name(features)
        outputs = self.encoder(features, training=training)
        vectors = outputs["sequence_output"]
        if "masked_lm_positions" in features:
            vectors = gather_positions(vectors, features["masked_lm_positions"])
        return {"masked_lm_logits": self.masked_lm_head(vectors)} | self.pair_logits(outputs)

    def pair_logits(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.pair_head is None:
            return {}
        return {"pair_logits": ops.cast(self.pair_head(outputs["pooled_output"]), "float32")}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        """Returns sum(weight * word loss) / (sum(weight) + 1e-5) + mean pair loss (run_pretraining.py:177, 294-361).

        `x` has masked_lm_ids and masked_lm_weights [batch, predictions], and next_sentence_labels [batch, 1]. Packed
        rows have labels and pair_weights [batch, examples per row]; a weight is 0 where a row has fewer pairs.
        """
        self.check_weights(sample_weight)
        part = current_part()
        divisors = self.loss_divisors(x) if part is None else part.whole
        nll, weights = _word_losses(x, y_pred)
        loss = self.with_added_losses(ops.sum(nll * weights) / (divisors["words"] + self.loss_epsilon))
        if self.pair_head is None:
            return loss
        labels, logits, weights = _pairs(x, y_pred)
        return loss + ops.sum(_cross_entropy(labels, logits) * weights) / ops.maximum(divisors["pairs"], 1)

    def loss_divisors(self, x: Any, y: Any = None, sample_weight: Tensor = None) -> Divisors:
        pairs = {} if self.pair_head is None else {"pairs": ops.sum(_pair_weights(x))}
        words = ops.sum(ops.cast(x["masked_lm_weights"], "float32"))
        return super().loss_divisors(x, y, sample_weight) | {"words": words} | pairs

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        self.encoder.measure()
        nll, weights = _word_losses(x, y_pred)
        self._means[0].update_state(nll, weights)
        self._means[1].update_state(_correct(x["masked_lm_ids"], y_pred["masked_lm_logits"]), weights)
        if self.pair_head is not None:
            labels, logits, weights = _pairs(x, y_pred)
            self._means[2].update_state(_cross_entropy(labels, logits), weights)
            self._means[3].update_state(_correct(labels, logits), weights)
        return self.get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        results = super().get_metrics_result()
        # Not the mean of batch losses, which depends on the distribution of words over batches.
        loss = sum(results[mean.name] for mean in self._means[::2])
        return results | {"loss": loss + sum(one.evaluated_loss(results) for one in self.encoder.config.extensions)}

    def running_means(self) -> list[keras.metrics.Metric]:
        return [*self._means, *self.encoder.means]

    # Saves the sums of a run that a signal ended between two rows of its history, so that the row covers all its steps.
    def save_own_variables(self, store: Any) -> None:
        if _is_of_several_workers(self._means[0].count):
            return  # Several workers save only when a row is complete, and all must read the same.
        sums = [ops.convert_to_numpy(variable) for mean in self.running_means() for variable in mean.variables]
        if any(sums):
            store["running_means"] = np.array(sums, "float32")

    def load_own_variables(self, store: Any) -> None:
        if "running_means" in set(store.keys()):
            variables = [variable for mean in self.running_means() for variable in mean.variables]
            for variable, value in zip(variables, np.array(store["running_means"])):
                variable.assign(value)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pair_task": self.pair_task}


def _is_of_several_workers(variable: keras.Variable) -> bool:
    resolver = getattr(getattr(variable.value, "distribute_strategy", None), "cluster_resolver", None)
    return resolver is not None and bool(resolver.cluster_spec())


def _cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    nats = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    # For such a label JAX returns zeros, and TensorFlow an error or NaN.
    return nats if keras.backend.backend() == "tensorflow" else or_nan(nats, labels, logits.shape[-1])


def _word_losses(features: Any, predictions: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    nll = _cross_entropy(features["masked_lm_ids"], predictions["masked_lm_logits"])
    return nll, ops.cast(features["masked_lm_weights"], "float32")


def _pairs(features: Any, predictions: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    labels = ops.reshape(features["next_sentence_labels"], (-1,))
    return labels, ops.reshape(predictions["pair_logits"], (-1, 2)), _pair_weights(features)


def _pair_weights(features: Any) -> Tensor:
    weights = features.get("pair_weights", ops.ones_like(features["next_sentence_labels"]))
    return ops.cast(ops.reshape(weights, (-1,)), "float32")


def _correct(labels: Tensor, logits: Tensor) -> Tensor:
    return ops.cast(ops.equal(ops.cast(labels, "int32"), ops.cast(ops.argmax(logits, axis=-1), "int32")), "float32")
