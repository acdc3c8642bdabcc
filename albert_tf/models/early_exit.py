import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name
from albert_tf.models.dense_head import DenseHeadModel
from albert_tf.models.exit_rules import ExitRule, check_exits, leave, movements, tokens_and_threshold
from albert_tf.models.whole_batch import divisor_of, share_of_batch
from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class LearnedExit:
    """Trains a model to decide when to stop, as PALBERT does (arXiv:2204.03276).

    A row that reaches step i exits there with an ExitGate's probability lambda_i, so the probability of exiting at step
    i is p_i = lambda_i * prod_{j<i} (1 - lambda_j); remaining rows exit at the last step. The loss is sum_i p_i
    loss_i + beta * KL(p || prior), where the prior is p for a constant lambda.

    Attributes:
        prior: the constant lambda of the prior, above 0 and below 1; rows exit after about 1 / prior steps.
        beta: weight of the KL term.

    Raises:
        UserError: a value out of range.

    >>> LearnedExit(prior=0.5).log_prior(3)
    [-0.6931471805599453, -1.3862943611198906, -1.3862943611198906]
    """

    prior: float = 0.1
    beta: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.prior < 1:
            raise UserError(f"exit prior {self.prior} must be above 0 and below 1")
        if not 0 <= self.beta < float("inf"):
            raise UserError(f"exit beta {self.beta} must be 0 or more")

    def log_prior(self, steps: int) -> list[float]:
        leave, stay = math.log(self.prior), math.log1p(-self.prior)
        return [leave + i * stay for i in range(steps - 1)] + [(steps - 1) * stay]


def log_exit_probabilities(gates: Tensor) -> Tensor:
    """Returns log p of exiting at each step, float32 [batch, steps], from an ExitGate's logits [batch, steps - 1]."""
    stayed = ops.cumsum(ops.log_sigmoid(-gates), axis=1)
    before = ops.pad(stayed, [[0, 0], [1, 0]])
    return before + ops.pad(ops.log_sigmoid(gates), [[0, 0], [0, 1]])


class EarlyExitModel(DenseHeadModel):
    """A model that may have a head after every depth step; the heads share pooler and dropout.

    With `early_exit` the loss is the mean of all steps' losses, weighted by step number (PABEE, arXiv:2006.04152,
    section 3.3), or as LearnedExit says. In training `call` returns every step's logits (with a LearnedExit a dict of
    "logits" and "gates"), otherwise the last step's. A functional model needs `every_step=True` to train all heads.
    """

    exit_kind = "classification"
    graph_arguments = {"every_step": False}

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        units: int,
        dropout: float = 0.1,
        early_exit: bool | LearnedExit | Mapping[str, float] = False,
        **kwargs: Any,
    ):
        config, inner_heads = getattr(encoder, "config", encoder), 0
        exits = LearnedExit(**early_exit) if isinstance(early_exit, Mapping) else early_exit
        learned: Any = exits if isinstance(exits, LearnedExit) else None
        if early_exit and isinstance(config, AlbertConfig):
            check_exits(config)
            inner_heads = config.num_steps - 1
        if learned and not inner_heads:
            raise UserError("a model of 1 step has nothing to learn about when to leave; leave out LearnedExit")
        super().__init__(encoder, units, dropout, inner_heads, learned and learned.prior, **kwargs)
        self.early_exit, self.learned_exit = bool(early_exit), learned

    @property
    def exit_heads(self) -> list[keras.layers.Layer]:
        return [*self.inner_heads, self.head] if self.early_exit else []

    def step_vectors(self, hidden: Tensor) -> Tensor:
        return self.encoder.pooler(hidden[:, 0])

    def exit_logits(self, features: Any, training: bool = False) -> list[Tensor]:
        return self._exits(self._states(features, training), training)

    def exit_probabilities(self, features: Any) -> Tensor:
        """Returns each step's exit probability, float32 [batch, steps], for a model with a LearnedExit."""
        check_exit(ExitRule(self.exit_kind, "learned"), self)
        return ops.exp(log_exit_probabilities(self._gates(self._states(features, False))))

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
        evidence = list[Tensor]()
        if how.name == "movement":
            evidence = movements(how, states, mask)
        elif how.name == "learned":
            evidence = ops.unstack(self._gates(states), axis=1)
        return leave(how, self._exits(states, False), evidence, mask, threshold)

    def logits_of_steps(self, features: Any, training: bool) -> Any:
        states = self._states(features, training)
        logits = self._exits(states, training)
        return logits if self.exit_gate is None else {"logits": logits, "gates": self._gates(states)}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        loss = super().compute_loss
        if isinstance(y_pred, dict):
            log_p = log_exit_probabilities(y_pred["gates"])
            log_prior = self.learned_exit.log_prior(len(self.exit_heads))
            divergence = ops.sum(ops.exp(log_p) * (log_p - ops.cast(log_prior, "float32")), axis=1)
            logits, y, weights = _stacked(y_pred["logits"], y, ops.exp(log_p), sample_weight)
            expected = loss(x, y, logits, weights, training=training)
            return expected + self.learned_exit.beta * self._mean_over_rows(divergence, sample_weight)
        if not isinstance(y_pred, list):
            return loss(x, y, y_pred, sample_weight, training=training)
        losses = [step * loss(x, y, logits, sample_weight, training=training) for step, logits in enumerate(y_pred, 1)]
        return sum(losses) / sum(range(1, len(losses) + 1))

    def _mean_over_rows(self, values: Tensor, sample_weight: Tensor) -> Tensor:
        if sample_weight is None:
            return share_of_batch(ops.mean(values))
        weights = ops.cast(sample_weight, "float32")
        weights = ops.mean(weights, axis=tuple(range(1, len(weights.shape))))
        values, divisor = values * weights, divisor_of(self.loss)
        mean = ops.divide_no_nan(ops.sum(values), ops.sum(weights)) if divisor == "weights" else ops.mean(values)
        return share_of_batch(mean, "weights" if divisor == "weights" else "rows")

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor = None) -> dict[str, Any]:
        every = y_pred["logits"] if isinstance(y_pred, dict) else y_pred
        last = every[-1] if isinstance(every, list) else every
        return super().compute_metrics(x, y, last, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        learned = self.learned_exit and dataclasses.asdict(self.learned_exit)
        return {**super().get_config(), "early_exit": learned or self.early_exit}

    def _states(self, features: Any, training: bool) -> list[Tensor]:
        return self.encoder(features, training=training, output_hidden_states=True)["hidden_states"]

    def _exits(self, states: list[Tensor], training: bool) -> list[Tensor]:
        heads = self.exit_heads or [self.head] * (len(states) - 1)
        return [self.logits(head, self.step_vectors(state), training) for head, state in zip(heads, states[1:])]

    def _gates(self, states: list[Tensor]) -> Tensor:
        firsts = [state[:, 0] for state in states[:-1]]
        return ops.stack([self.exit_gate(now, before) for before, now in itertools.pairwise(firsts)], axis=1)


def check_exit(rule: ExitRule, model: keras.Model) -> None:
    """Raises UserError if a model was not trained for a rule."""
    if model.encoder.config.spec.last_token and not rule.by_token:
        raise UserError("a row leaves by its first token, and relative positions have [CLS] last; leave out early exit")
    if rule.name == "learned" and getattr(model, "exit_gate", None) is None:
        raise UserError(f"this {type(model).__name__} has not learned when to leave; train it with --learned_exit")
    if rule.reads_answers and not getattr(model, "exit_heads", []):
        raise UserError(f"early exit by {rule.name} needs a head after every step; train it with --early_exit")


def _stacked(every: list[Tensor], y: Any, probabilities: Tensor, sample_weight: Tensor) -> tuple[Tensor, Any, Tensor]:
    steps = len(every)
    if sample_weight is None:
        sample_weight = ops.ones(ops.shape(every[0])[:-1])
    sample_weight = ops.cast(sample_weight, "float32")
    shares = ops.reshape(ops.transpose(probabilities), (-1, *[1] * (len(sample_weight.shape) - 1)))

    def repeated(values: Tensor) -> Tensor:
        return ops.concatenate([values] * steps, axis=0)

    # Their mean over the steps is 1.
    weights = steps * shares * repeated(sample_weight)
    return ops.concatenate(every, axis=0), keras.tree.map_structure(repeated, y), weights
