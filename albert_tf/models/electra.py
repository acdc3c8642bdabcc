"""The replaced-token pre-trainer: a generator puts words into a row, and the model says which are not the row's own."""

from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.dense import activation, dense
from albert_tf.layers.embeddings import LentEmbeddings
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.features import by_name
from albert_tf.layers.lookup import gather_positions
from albert_tf.models.base import variables_of
from albert_tf.models.pretrainer import AlbertPretrainer, FiniteMean
from albert_tf.models.whole_batch import Divisors, current_part
from tfrecords.base.errors import UserError

# What held-out rows draw their words by: the same at every evaluation.
_HELD_OUT_SEED = 0


def generator_config(config: AlbertConfig, size: float) -> AlbertConfig:
    """Gives the configuration of a generator of a fraction of a model's width (ELECTRA, section 3.2).

    Hidden size, intermediate size and heads are that fraction, at least one head; depth, sharing and the embeddings'
    size are the model's.

    Args:
        config: of the model.
        size: above 0 and at most 1; ELECTRA has a quarter to a half.

    Raises:
        UserError: a size out of these bounds, or embeddings of the model that no other width can share.

    >>> generator_config(AlbertConfig.named("albert_base_v2"), 0.25).hidden_size
    192
    """
    if not 0 < size <= 1:
        raise UserError(f"generator_size {size} must be above 0 and at most 1")
    if config.factorization == "word" and size < 1:
        raise UserError("factorization 'word' has tables of hidden_size, which no other width shares; use 'all'")
    hidden, most = max(round(size * config.hidden_size), 1), max(int(size * config.num_attention_heads), 1)
    heads = next(number for number in range(most, 0, -1) if hidden % number == 0)
    inside = max(round(size * config.intermediate_size), 1)
    return config.replace(hidden_size=hidden, num_attention_heads=heads, intermediate_size=inside)


@keras.saving.register_keras_serializable(package="albert_tf")
class ElectraPretrainer(AlbertPretrainer):
    """Says of every token whether it is the text's own, where a generator has drawn words for the masked ones.

    Replaced-token detection (Clark et al. 2020, arXiv:2003.10555): the loss is that of the generator's masked words
    plus `replaced_weight` times the mean binary cross-entropy over all tokens that are no padding. A word that the
    generator guesses right counts as the text's own. No gradient passes through the draw. It brings its own loss and
    metrics: `compile(optimizer=...)`, then `fit` on a dataset of feature dicts.

    Args:
        encoder: the model, which is what is used afterwards: an AlbertEncoder, or the AlbertConfig of a new one.
        pair_task: as in AlbertPretrainer; its head stands on the model and sees the drawn words.
        generator_size: width of the generator as a fraction of the model's; it shares the model's embeddings.
        generator_steps: the model itself, read after so many of its steps, is the generator; 0: it is not.
        replaced_weight: of the detection's loss beside that of the masked words.
        seed: of the draws; drawn at random where None.
        **kwargs: arguments of `keras.Model`.

    Raises:
        UserError: as AlbertPretrainer and `generator_config`; or the encoder has no such step, or no fixed steps.

    >>> import numpy as np
    >>> model = ElectraPretrainer(AlbertConfig.named("albert_tiny").replace(num_hidden_layers=2))
    >>> outputs = model.predict({"input_ids": np.array([[101, 103, 1962, 102]])}, verbose=0)
    >>> {name: logits.shape for name, logits in outputs.items()}
    {'masked_lm_logits': (1, 4, 21128), 'replaced_logits': (1, 4)}
    """

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        pair_task: str | None = None,
        generator_size: float = 0.25,
        generator_steps: int = 0,
        replaced_weight: float = 50.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        self._generator_arguments = generator_size, generator_steps
        self.replaced_weight, self.seed = replaced_weight, seed
        super().__init__(encoder, pair_task=pair_task, **kwargs)

    def word_config(self, encoder: AlbertEncoder) -> AlbertConfig:
        config, (size, steps) = encoder.config, self._generator_arguments
        if config.equilibrium_solver != "none" or config.halting != "none":
            raise UserError("replaced-token detection needs fixed steps: leave out equilibrium_solver and halting")
        if steps > config.num_steps:
            raise UserError(f"generator_steps {steps} is more than the model's {config.num_steps} steps")
        return config if steps else generator_config(config, size)

    def build(self, input_shape: Any = None) -> None:
        encoder, words = self.encoder, self.masked_lm_head.config
        self.generator: Any = None
        if not self._generator_arguments[1]:
            lent = LentEmbeddings(words, encoder.embeddings, dtype=self.dtype_policy, name="embeddings")
            # Another seed: its dropout is not to hide what the model's hides.
            seed = None if encoder.seed is None else encoder.seed + 1
            self.generator = AlbertEncoder(
                words, walk=encoder.walk, pooler=False, seed=seed, embeddings=lent, dtype=self.dtype_policy,
                name="generator",
            )  # fmt: skip
        own = {"dtype": self.dtype_policy}
        config = encoder.config
        self.replaced_dense = dense(
            config, config.hidden_size, activation=activation(config.hidden_act), name="replaced_dense", **own
        )
        self.replaced_head = dense(config, 1, name="replaced_head", **own)
        for layer in (self.replaced_dense, self.replaced_head):
            layer.build((None, config.hidden_size))
        self.draws = keras.random.SeedGenerator(self.seed)
        self._replaced_means = [FiniteMean(name=f"replaced_token_{name}") for name in ("loss", "accuracy", "share")]
        super().build(input_shape)

    def in_use(self) -> AlbertEncoder:
        """Gives the encoder: what predicts words does not stand on it."""
        return self.encoder

    def head_variables(self) -> dict[str, keras.Variable]:
        parts = {"replaced/dense": self.replaced_dense, "replaced/head": self.replaced_head}
        variables = super().head_variables()
        for prefix, layer in parts.items():
            variables |= variables_of(prefix, layer)
        if self.generator is not None:
            # A path begins with the model's name, and with that of the pre-trainer in it.
            own = {one.path.partition("generator/")[2]: one for one in self.generator.trainable_variables}
            variables |= {f"generator/{name}": variable for name, variable in own.items()}
        return variables

    def call(self, features: Any, training: bool = False) -> dict[str, Tensor]:
        """Scores the vocabulary at masked positions by the generator, and every token by the model.

        Args:
            features: those of AlbertPretrainer; with masked_lm_ids and masked_lm_weights [batch, predictions] the
                model is given the words that the generator draws in place of those, otherwise input_ids as they are.
            training: whether dropout applies, and whether each call draws anew.

        Returns:
            dict of AlbertPretrainer's logits, of float32 replaced_logits [batch, sequence], above 0 where a token
            is likely not the text's own, and where words were drawn int32 is_replaced [batch, sequence].
        """
        features = by_name(features)
        vectors = self._generated(features, training)
        if "masked_lm_positions" in features:
            vectors = gather_positions(vectors, features["masked_lm_positions"])
        logits = {"masked_lm_logits": self.masked_lm_head(vectors)}
        if "masked_lm_ids" in features:
            features, logits["is_replaced"] = self._with_draws(features, logits["masked_lm_logits"], training)
        outputs = self.encoder(features, training=training)
        scores = self.replaced_head(self.replaced_dense(outputs["sequence_output"]))
        logits["replaced_logits"] = ops.cast(scores[..., 0], "float32")
        return logits | self.pair_logits(outputs)

    def _generated(self, features: dict[str, Any], training: bool) -> Tensor:
        """The generator's vectors, [batch, sequence, width]."""
        steps = self._generator_arguments[1]
        if not steps:
            return self.generator(features, training=training)["sequence_output"]
        # Of the later steps nothing is read, so that no graph computes them.
        return self.encoder(features, training=training, output_hidden_states=True)["hidden_states"][steps]

    def _with_draws(self, features: dict[str, Any], logits: Tensor, training: bool) -> tuple[dict[str, Any], Tensor]:
        """The features with a word drawn for each masked one, and int32 [batch, sequence]: 1 where it is another."""
        batch, predictions, size = ops.shape(logits)
        flat = ops.reshape(ops.stop_gradient(logits), (-1, size))
        drawn = keras.random.categorical(flat, 1, dtype="int32", seed=self.draws if training else _HELD_OUT_SEED)
        ids, words = ops.cast(features["input_ids"], "int32"), ops.cast(features["masked_lm_ids"], "int32")
        weights = ops.cast(features["masked_lm_weights"] > 0, "int32")[:, :, None]
        places = ops.one_hot(ops.cast(features["masked_lm_positions"], "int32"), ops.shape(ids)[1], dtype="int32")
        places = places * weights
        is_masked = ops.max(places, axis=1)
        own, new = (
            ops.sum(places * values[:, :, None], axis=1) + (1 - is_masked) * ids
            for values in (words, ops.reshape(drawn, (batch, predictions)))
        )
        return features | {"input_ids": new}, ops.cast(ops.not_equal(own, new), "int32")

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        """Gives AlbertPretrainer's loss plus `replaced_weight` times the detection's; `x` as there."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training=training)
        part = current_part()
        tokens = (self.loss_divisors(x) if part is None else part.whole)["tokens"]
        nll, weights = _replaced_losses(x, y_pred)
        return loss + self.replaced_weight * ops.sum(nll * weights) / ops.maximum(tokens, 1)

    def loss_divisors(self, x: Any, y: Any = None, sample_weight: Tensor = None) -> Divisors:
        """Counts AlbertPretrainer's divisors, and the tokens that are no padding: float32 scalars."""
        return super().loss_divisors(x, y, sample_weight) | {"tokens": ops.sum(_token_weights(x))}

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        nll, weights = _replaced_losses(x, y_pred)
        replaced = ops.cast(y_pred["is_replaced"], "float32")
        correct = ops.cast(ops.equal(y_pred["replaced_logits"] > 0, replaced > 0), "float32")
        for mean, values in zip(self._replaced_means, (nll, correct, replaced)):
            mean.update_state(values, weights)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def get_metrics_result(self) -> dict[str, Any]:
        results = super().get_metrics_result()
        return results | {"loss": results["loss"] + self.replaced_weight * results["replaced_token_loss"]}

    def running_means(self) -> list[keras.metrics.Metric]:
        return [*super().running_means(), *self._replaced_means]

    # Keras leaves seed generators out of its files; a resumed run must draw the words that it would have drawn.
    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        store["draws"] = ops.convert_to_numpy(self.draws.state)

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        self.draws.state.assign(store["draws"])

    def get_config(self) -> dict[str, Any]:
        size, steps = self._generator_arguments
        own = {"generator_size": size, "generator_steps": steps, "replaced_weight": self.replaced_weight}
        return super().get_config() | own | {"seed": self.seed}


def _token_weights(features: Any) -> Tensor:
    """float32 [batch, sequence]: 0 for padding."""
    mask = features.get("input_mask")
    return ops.cast(ops.ones_like(features["input_ids"]) if mask is None else mask, "float32")


def _replaced_losses(features: Any, predictions: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Nats of each token, and its weight, [batch, sequence]."""
    logits, replaced = predictions["replaced_logits"], ops.cast(predictions["is_replaced"], "float32")
    return ops.softplus(logits) - replaced * logits, _token_weights(features)
