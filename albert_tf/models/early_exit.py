from typing import Any

import keras

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name
from albert_tf.models.dense_head import DenseHeadModel
from albert_tf.models.exit_rules import ExitRule, check_exits, leave, movements, tokens_and_threshold
from tfrecords.base.errors import UserError


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
        return self.encoder.pooler(hidden[:, 0])

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
    if model.encoder.config.spec.last_token and not rule.by_token:
        raise UserError("a row leaves by its first token, and relative positions have [CLS] last; leave out early exit")
    if rule.reads_answers and not getattr(model, "exit_heads", []):
        raise UserError(f"early exit by {rule.name} needs a head after every step; train it with --early_exit")
