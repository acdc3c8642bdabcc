from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.choices import PAIR_LOSSES
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.base import HolderModel, current_part, share_of_batch
from albert_tf.models.pair_losses import PairLoss
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.optimizers import AdamWeightDecay
from tfrecords.base.errors import UserError

# Prefix of a document's features among those of its query, and the numbers that a loss compares with.
DOCUMENT, TARGETS = "document_", "targets"
_FEATURES = ("input_ids", "input_mask", "segment_ids")


@keras.saving.register_keras_serializable(package="albert_tf")
class PairTrainer(HolderModel):
    """Holds the embedder `model` and trains it on the batches of `TextPairs`.

    Splitting a batch into parts or over devices changes neither loss nor gradients: the vectors of all parts are
    computed first without gradient, then each part's again with gradient (GradCache, arXiv:2101.06983).

    Args:
        loss: a PairLoss, or its settings as a dict.

    Raises:
        UserError: `model` is no embedder, or a Matryoshka width exceeds the model's.

    >>> from albert_tf import AlbertConfig
    >>> trainer = PairTrainer(AlbertSentenceEmbedder(AlbertConfig.named("albert_tiny")), PairLoss(dims=(312, 64)))
    >>> trainer.compile()
    """

    has_own_loss = True

    def __init__(self, model: AlbertSentenceEmbedder, loss: PairLoss | dict[str, Any] | None = None, **kwargs: Any):
        if not isinstance(model, AlbertSentenceEmbedder):
            raise UserError(f"a PairTrainer needs an AlbertSentenceEmbedder, not a {type(model).__name__}")
        kwargs.setdefault("dtype", model.dtype_policy)
        super().__init__(**kwargs)
        self.model = model
        self.pair_loss = loss if isinstance(loss, PairLoss) else PairLoss(**(loss or {}))
        if unfit := [width for width in self.pair_loss.dims if not 1 <= width <= model.dimensions]:
            raise UserError(f"the width {unfit[0]} must be from 1 to the {model.dimensions} of the model's vectors")
        # No gradient reaches the rest.
        if model.encoder.pooler is not None:
            model.encoder.pooler.trainable = False
        self.built = True

    @property
    def encoder(self) -> AlbertEncoder:
        return self.model.encoder

    def head_variables(self) -> dict[str, keras.Variable]:
        return self.model.head_variables()

    def compile(self, optimizer: Any = "auto", loss: Any = None, **kwargs: Any) -> None:
        """Compiles as keras.Model does; the default is ALBERT's AdamW at 2e-5, clipped at norm 1."""
        if optimizer == "auto":
            optimizer = AdamWeightDecay(2e-5, global_clipnorm=1.0)
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def call(self, features: dict[str, Tensor], training: bool = False) -> Tensor:
        """Returns the vectors of each row's texts, float32 [batch, texts, dimensions].

        `features` are those of AlbertEncoder for the queries, [batch, length], and, with the prefix `document_`, for
        the documents, [batch, documents, length].
        """
        vectors = self.model({name: features[name] for name in _FEATURES}, training=training)[:, None]
        if f"{DOCUMENT}input_ids" not in features:
            return vectors
        documents = {name: features[DOCUMENT + name] for name in _FEATURES}
        number = ops.shape(documents["input_ids"])[1]
        flat = {name: ops.reshape(value, (-1, ops.shape(value)[-1])) for name, value in documents.items()}
        found = ops.reshape(self.model(flat, training=training), (-1, number, self.model.dimensions))
        return ops.concatenate([vectors, found], axis=1)

    def compute_output_shape(self, input_shape: Any = None) -> tuple:
        return (None, None, self.model.dimensions)

    @property
    def needs_survey(self) -> bool:
        return PAIR_LOSSES[self.pair_loss.name].compares

    @property
    def surveyed(self) -> tuple[str, ...]:
        return ("vectors", TARGETS) if self.pair_loss.name == "cosent" else ("vectors",)

    def survey(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        vectors = self(features, training=True)
        found = {"vectors": ops.reshape(vectors, (ops.shape(vectors)[0], -1))}
        return found | {name: features[name] for name in self.surveyed[1:]}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        self.check_weights(sample_weight)
        part = current_part()
        if part is None or "vectors" not in part.whole:
            return share_of_batch(self._loss(y_pred, x.get(TARGETS)))
        shape = (-1, ops.shape(y_pred)[1], y_pred.shape[-1])
        everyone = ops.reshape(part.whole["vectors"], shape)
        places = part.whole["first_row"] + ops.arange(ops.shape(y_pred)[0])
        own = ops.cast(places[None] == ops.arange(ops.shape(everyone)[0])[:, None], "float32")
        # Only this part's rows get gradients; the gradients of all parts add up to the batch's.
        variable = ops.reshape(y_pred - ops.stop_gradient(y_pred), (ops.shape(y_pred)[0], -1))
        loss = self._loss(everyone + ops.reshape(ops.matmul(own, variable), shape), part.whole.get(TARGETS))
        value = ops.stop_gradient(loss)
        return share_of_batch(value) + loss - value

    def _loss(self, vectors: Tensor, targets: Tensor = None) -> Tensor:
        return self.pair_loss(vectors[:, 0], vectors[:, 1:], targets)

    def get_config(self) -> dict[str, Any]:
        loss = {name: getattr(self.pair_loss, name) for name in self.pair_loss.__dataclass_fields__}
        return {**super().get_config(), "loss": loss}
