from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import ResumableDropout
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name
from albert_tf.layers.weights import dense
from albert_tf.models.base import EncoderModel, variables_of
from albert_tf.models.exit_rules import ExitRule, check_exits, leave, movements, tokens_and_threshold
from tfrecords.base.errors import UserError, refuse


class DenseHeadModel(EncoderModel):
    """Applies dropout and one dense layer to the result of the method `vectors`.

    `inner_heads` is the number of further dense layers, for earlier depth steps.
    """

    needs_pooler = True
    early_exit = False
    logits_of_steps: Callable[[Any, bool], Any]

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        units: int,
        dropout: float = 0.1,
        inner_heads: int = 0,
        **kwargs: Any,
    ):
        needs_pooler = self.needs_pooler or getattr(encoder, "config", encoder).pooler_norm
        super().__init__(encoder, pooler=needs_pooler, **kwargs)
        if needs_pooler and self.encoder.pooler is None:
            raise UserError(f"{type(self).__name__} needs an encoder with a pooler")
        config = self.encoder.config
        self.dropout = ResumableDropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = dense(config, units, dtype=self.dtype_policy, name="head")
        self.inner_heads = [dense(config, units, dtype=self.dtype_policy, name=f"exit_{i}") for i in range(inner_heads)]
        self.build((None,) * self.input_rank)

    def build(self, input_shape: Any = None) -> None:
        tokens = () if self.needs_pooler else (None,)
        for layer in (self.dropout, self.head, *self.inner_heads):
            layer.build((None, *tokens, self.encoder.config.hidden_size))

    def head_variables(self) -> dict[str, keras.Variable]:
        variables = variables_of("classifier", self.head)
        for i, head in enumerate(self.inner_heads):
            variables |= variables_of(f"exit_{i}", head)
        return variables

    def vectors(self, features: Any, training: bool) -> Tensor:
        outputs = self.encoder(features, training=training)
        if not (training and self.encoder.config.position_offset):
            return outputs["pooled_output"]
        # RoBERTa's head also has dropout before its tanh layer (transformers RobertaClassificationHead).
        return self.encoder.pooled(self.dropout(outputs["sequence_output"][:, 0], training=True))

    def call(self, features: Any, training: bool = False, every_step: bool | None = None) -> Any:
        """Returns logits for the features of AlbertEncoder.

        With `early_exit`, `every_step` asks for the logits of every depth step; None: only in training.
        """
        if self.early_exit and (training if every_step is None else every_step):
            return self.logits_of_steps(features, training)
        return self.logits(self.head, self.vectors(features, training), training)

    def logits(self, head: keras.layers.Layer, vectors: Tensor, training: bool) -> Tensor:
        return ops.cast(head(self.dropout(vectors, training=training)), "float32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.dropout.rate}


class EarlyExitModel(DenseHeadModel):
    """A model that may have a head after every depth step; the heads share pooler and dropout.

    With `early_exit` the loss is the mean of all steps' losses, weighted by step number (PABEE, arXiv:2006.04152,
    section 3.3). In training `call` returns every step's logits, otherwise the last step's. A functional model needs
    `every_step=True` to train all heads.
    """

    exit_kind = "classification"
    graph_arguments = {"every_step": False}

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        units: int,
        dropout: float = 0.1,
        early_exit: bool = False,
        **kwargs: Any,
    ):
        config, inner_heads = getattr(encoder, "config", encoder), 0
        if early_exit and isinstance(config, AlbertConfig):
            check_exits(config)
            inner_heads = config.num_steps - 1
        super().__init__(encoder, units, dropout, inner_heads, **kwargs)
        self.early_exit = early_exit

    @property
    def exit_heads(self) -> list[keras.layers.Layer]:
        return [*self.inner_heads, self.head] if self.early_exit else []

    def step_vectors(self, hidden: Tensor) -> Tensor:
        return self.encoder.pooled(hidden[:, 0])

    def exit_logits(self, features: Any, training: bool = False) -> list[Tensor]:
        return self._exits(self._states(features, training), training)

    def answer_early(
        self, features: Any, threshold: Any = 0.5, rule: str = "confidence", tolerance: float = 0.1
    ) -> dict[str, Tensor]:
        """Returns the results of an early-exit export, but computes all steps.

        `features` are as in `call`; `threshold` is a number or float32 [batch]. See ExitRule.

        Returns:
            dict of logits, as from `call`, and steps, int32 [batch], after which each row exited.

        Raises:
            UserError: an unknown rule, or one that the model was not trained for.
        """
        how = ExitRule(self.exit_kind, rule, tolerance)
        check_exit(how, self)
        states, features = self._states(features, False), by_name(features)
        mask, threshold = tokens_and_threshold(features, threshold)
        evidence = movements(how, states, mask) if how.name == "movement" else []
        return leave(how, self._exits(states, False), evidence, mask, threshold)

    def logits_of_steps(self, features: Any, training: bool) -> Any:
        return self.exit_logits(features, training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        loss = super().compute_loss
        if not isinstance(y_pred, list):
            return loss(x, y, y_pred, sample_weight, training=training)
        losses = [step * loss(x, y, logits, sample_weight, training=training) for step, logits in enumerate(y_pred, 1)]
        return sum(losses) / sum(range(1, len(losses) + 1))

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        last = y_pred[-1] if isinstance(y_pred, list) else y_pred
        return super().compute_metrics(x, y, last, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "early_exit": self.early_exit}

    def _states(self, features: Any, training: bool) -> list[Tensor]:
        return self.encoder(features, training=training, output_hidden_states=True)["hidden_states"]

    def _exits(self, states: list[Tensor], training: bool) -> list[Tensor]:
        heads = self.exit_heads or [self.head] * (len(states) - 1)
        return [self.logits(head, self.step_vectors(state), training) for head, state in zip(heads, states[1:])]


def check_exit(rule: ExitRule, model: keras.Model) -> None:
    """Raises UserError if a model was not trained for a rule."""
    refuse({
        "a row leaves by its first token, and relative positions have [CLS] last; leave out early exit":
            model.encoder.config.spec.last_token and not rule.by_token,
        f"early exit by {rule.name} needs a head after every step; train it with --early_exit":
            rule.reads_answers and not getattr(model, "exit_heads", []),
    })  # fmt: skip
