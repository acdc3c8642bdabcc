"""When a row has seen enough steps: rules that read the answers after a step, or the states that they are made of.

The functions serve exports, too.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from keras import ops

from albert_tf.base import Tensor
from albert_tf.choices import EXIT_RULES
from albert_tf.config import AlbertConfig
from albert_tf.registry import setting_of
from tfrecords.base.errors import UserError

# What a model answers by; "states" is the encoder alone, whose rows leave by how far they move.
KINDS = ("classification", "regression", "tagging", "states")


@dataclasses.dataclass(frozen=True)
class ExitRule:
    """When a row is decided.

    Attributes:
        kind: what the logits are: "classification", "regression" ([batch, 1]) or "tagging" (a class for each token; a
            row is decided when all its tokens are). "states": there are none, a row's tokens themselves are wanted.
        name: "confidence": the largest probability is at least the threshold (for a number: it moved by no more than
            the threshold since the step before). "patience": the answer stayed the same for as many steps in a row as
            the threshold says (arXiv:2006.04152); numbers are the same within `tolerance`. "learned": the probability
            of having left by now, which an ExitGate gives, is above the threshold (arXiv:2204.03276). "movement":
            |h_l - h_(l-1)| / |h_l| is below the threshold, h being what the answer is made of: the state of the first
            token, or of all the row's tokens together for "tagging" and "states". It needs no training.
        tolerance: see "patience".

    Raises:
        UserError: an unknown kind or name, or a rule that reads answers where there are none.
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
        """Tells whether a row's answer is made of all its tokens, not of the first alone."""
        return self.kind in ("tagging", "states")

    @property
    def reads_answers(self) -> bool:
        """Tells whether `decide` is to be asked of each answer, not `decide_by_state` of each row."""
        return self.name in ("confidence", "patience")

    @property
    def never(self) -> float:
        """Gives a threshold that no row reaches."""
        numbers_move = self.kind == "regression" and self.name == "confidence"
        return -1.0 if numbers_move or self.name == "movement" else 1e9

    def decide(self, logits: Tensor, before: Tensor, unchanged: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Says of each answer whether it is decided, and for how many steps it has not changed.

        Args:
            logits: float32 [answers, units] of this step.
            before: those of the step before, infinite at the first.
            unchanged: float32 [answers], what this gave at the step before, 0 at the first.
            threshold: float32 [answers].

        Returns:
            bool [answers] and float32 [answers].
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
        """Says of each row whether it is decided, and the probability of having left by now.

        Args:
            evidence: float32 [rows], of "learned" the ExitGate's logits after this step, of "movement" the state's.
            left: float32 [rows], what this gave at the step before, 0 at the first.
            threshold: float32 [rows].

        Returns:
            bool [rows] and float32 [rows].
        """
        if self.name == "movement":
            return evidence < threshold, left
        left = left + (1 - left) * ops.sigmoid(evidence)
        return left > threshold, left


def movement(state: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """Gives |h_l - h_(l-1)| / |h_l| of each row, 0 where nothing moved.

    Args:
        state: h_l, [batch, sequence, hidden_size].
        before: h_(l-1).
        mask: bool [batch, sequence], the tokens that count.

    Returns:
        float32 [batch].
    """
    state, before = ops.cast(state, "float32"), ops.cast(before, "float32")
    moved, length = (
        ops.sum(ops.where(mask, ops.sum(ops.square(vectors), axis=-1), 0.0), axis=1)
        for vectors in (state - before, state)
    )
    return relative(moved, length)


def movements(rule: ExitRule, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
    """Gives the `movement` after each step but the last, of what a rule looks at.

    Args:
        rule: by movement.
        states: [batch, sequence, hidden_size], the first step's input and what each step gave.
        mask: bool [batch, sequence], of tokens.

    Returns:
        float32 [batch] for each, the `evidence` that `leave` takes.
    """
    if not rule.by_token:
        states, mask = [state[:, :1] for state in states], mask[:, :1]
    return [movement(state, before, mask) for before, state in itertools.pairwise(states[:-1])]


def relative(moved: Tensor, length: Tensor) -> Tensor:
    """Gives the ratio of two lengths from their squares, float32, 0 where both are 0."""
    return ops.sqrt(moved / ops.maximum(length, 1e-30))


def leave(
    rule: ExitRule, every: Sequence[Tensor], evidence: Sequence[Tensor], mask: Tensor, threshold: Tensor
) -> dict[str, Tensor]:
    """Finds what rows answer that leave by a rule, from what they would answer at each step.

    Args:
        rule: when they leave.
        every: of each step float32 logits, [batch, units] or [batch, sequence, units]; or states, likewise.
        evidence: of each step but the last float32 [batch] as `decide_by_state` takes it; [] of a rule that reads
            answers.
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
    """Raises UserError where rows of an encoder cannot leave early."""
    for one in config.extensions:
        if one.no_exits:
            raise UserError(
                f"early exit and {setting_of(config, one)} exclude each other: {one.no_exits}; leave one out"
            )
