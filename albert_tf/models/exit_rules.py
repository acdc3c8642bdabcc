"""Rules for when a row stops early, by its answers or states after a step; for models and exports."""

import dataclasses
import itertools
from collections.abc import Sequence

from keras import ops

from albert_tf.base import Tensor
from albert_tf.choices import EXIT_RULES
from albert_tf.config import AlbertConfig
from albert_tf.extension import setting_of
from tfrecords.base.errors import UserError

# Types of answers; "states" is the encoder alone, whose rows exit by movement.
KINDS = ("classification", "regression", "tagging", "states")


@dataclasses.dataclass(frozen=True)
class ExitRule:
    """A criterion for when a row stops.

    Attributes:
        kind: type of the logits: "classification", "regression" ([batch, 1]) or "tagging" (a class per token; a row
            stops when all its tokens are decided); "states" for none: the answer is the tokens' states.
        name: "confidence": the largest probability is at least the threshold (a number moved by at most that since the
            last step). "patience": the answer was unchanged for `threshold` consecutive steps (arXiv:2006.04152);
            numbers within `tolerance`. "learned": the ExitGate's probability of having exited is above the threshold
            (arXiv:2204.03276). "movement": |h_l - h_(l-1)| / |h_l| is below the threshold, for the first token's state
            h, or all the row's tokens for "tagging" and "states"; it needs no training.
        tolerance: see "patience".

    Raises:
        UserError: an unknown kind or name, or a rule that reads answers for "states".
    """

    kind: str = "classification"
    name: str = "confidence"
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"early exit of kind '{self.kind}' is none of {', '.join(KINDS)}")
        if self.name not in EXIT_RULES:
            raise UserError(f"early exit rule '{self.name}' is none of {', '.join(EXIT_RULES)}")
        if self.kind == "states" and self.name != "movement":
            raise UserError(f"early exit by {self.name} needs a model with exit heads; this one can leave by movement")

    @property
    def by_token(self) -> bool:
        """Returns whether a row's answer depends on all its tokens, not on the first alone."""
        return self.kind in ("tagging", "states")

    @property
    def reads_answers(self) -> bool:
        """Returns whether `decide` applies, to each answer, rather than `decide_by_state`, to each row."""
        return self.name in ("confidence", "patience")

    @property
    def never(self) -> float:
        """Returns a threshold that no row reaches."""
        numbers_move = self.kind == "regression" and self.name == "confidence"
        return -1.0 if numbers_move or self.name == "movement" else 1e9

    def decide(self, logits: Tensor, before: Tensor, unchanged: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Returns whether each answer is decided, bool [answers], and its number of unchanged steps, float32 [answers].

        Args:
            logits: float32 [answers, units] of this step.
            before: those of the step before, infinite at the first.
            unchanged: the second result at the step before, 0 at the first.
            threshold: float32 [answers].
        """
        # Not NaN: grappler makes ">" of "not <=".
        has_before = ops.isfinite(before[:, 0])
        if self.kind == "regression":
            moved = ops.abs(logits - before)[:, 0]
            same = ops.logical_and(moved <= self.tolerance, has_before)
        else:
            same = ops.logical_and(ops.equal(ops.argmax(logits, axis=1), ops.argmax(before, axis=1)), has_before)
        unchanged = ops.where(same, unchanged + 1, 0.0)
        if self.name == "patience":
            return unchanged >= threshold, unchanged
        if self.kind == "regression":
            return ops.logical_and(moved <= threshold, has_before), unchanged
        return ops.max(ops.softmax(logits), axis=1) >= threshold, unchanged

    def decide_by_state(self, evidence: Tensor, left: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Returns whether each row is decided, bool [rows], and its probability of having exited, float32 [rows].

        Args:
            evidence: float32 [rows]: for "learned" the ExitGate's logits after this step, for "movement" the state's.
            left: the second result at the step before, 0 at the first.
            threshold: float32 [rows].
        """
        if self.name == "movement":
            return evidence < threshold, left
        left = left + (1 - left) * ops.sigmoid(evidence)
        return left > threshold, left


def movement(state: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """Returns each row's |h_l - h_(l-1)| / |h_l|, float32 [batch], 0 where nothing moved.

    States are [batch, sequence, hidden_size]; `mask`, bool [batch, sequence], selects tokens.
    """
    state, before = ops.cast(state, "float32"), ops.cast(before, "float32")
    moved, length = (
        ops.sum(ops.where(mask, ops.sum(ops.square(vectors), axis=-1), 0.0), axis=1)
        for vectors in (state - before, state)
    )
    return relative(moved, length)


def movements(rule: ExitRule, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
    """Returns the `movement` after each step but the last, float32 [batch] each: the `evidence` for `leave`.

    `states` are [batch, sequence, hidden_size], the first step's input and each step's output; `mask`, bool [batch,
    sequence], selects tokens.
    """
    if not rule.by_token:
        states, mask = [state[:, :1] for state in states], mask[:, :1]
    return [movement(state, before, mask) for before, state in itertools.pairwise(states[:-1])]


def relative(moved: Tensor, length: Tensor) -> Tensor:
    """Returns the ratio of two lengths from their squares, float32, 0 where both are 0."""
    return ops.sqrt(moved / ops.maximum(length, 1e-30))


def leave(
    rule: ExitRule, every: Sequence[Tensor], evidence: Sequence[Tensor], mask: Tensor, threshold: Tensor
) -> dict[str, Tensor]:
    """Selects the answers of rows that exit by a rule, from their answers at each step.

    Args:
        rule: the criterion.
        every: per step float32 logits, [batch, units] or [batch, sequence, units]; or states, likewise.
        evidence: per step but the last float32 [batch] for `decide_by_state`; [] for a rule that reads answers.
        mask: bool [batch, sequence], of tokens.
        threshold: float32 [batch].

    Returns:
        dict of logits like one step's, and steps, int32 [batch].
    """
    batch, last, before = ops.shape(mask)[0], len(every), None
    answers = ops.shape(mask)[1] if rule.by_token else 1
    memory = ops.zeros(batch * answers if rule.reads_answers else batch)
    is_open, chosen, steps = ops.ones(batch, dtype="bool"), ops.zeros_like(every[0]), ops.zeros(batch, dtype="int32")
    for step, logits in enumerate(every, 1):
        chosen = ops.where(ops.reshape(is_open, (-1, *[1] * (len(logits.shape) - 1))), logits, chosen)
        steps = ops.where(is_open, step, steps)
        if step == last:
            break
        if rule.reads_answers:
            flat = ops.reshape(logits, (-1, logits.shape[-1]))
            before = ops.full_like(flat, float("inf")) if before is None else before
            decided, memory = rule.decide(flat, before, memory, ops.repeat(threshold, answers))
            before, decided = flat, ops.reshape(decided, (-1, answers))
            decided = ops.all(ops.logical_or(decided, ops.logical_not(mask)) if rule.by_token else decided, axis=1)
        else:
            decided, memory = rule.decide_by_state(evidence[step - 1], memory, threshold)
        is_open = ops.logical_and(is_open, ops.logical_not(decided))
    return {"logits": chosen, "steps": steps}


def check_exits(config: AlbertConfig) -> None:
    """Raises UserError if an encoder's rows cannot exit early."""
    for one in config.extensions:
        if one.no_exits:
            raise UserError(
                f"early exit and {setting_of(config, one)} exclude each other: {one.no_exits}; leave one out"
            )
