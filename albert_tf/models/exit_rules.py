import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from keras import ops

from albert_tf.base import Tensor
from albert_tf.choices import EXIT_RULES
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import setting_of
from tfrecords.base.errors import UserError, refuse


@dataclasses.dataclass(frozen=True)
class ExitRule:
    """A criterion for when a row stops.

    Attributes:
        kind: "classification"; "regression"; "tagging", where all tokens must be decided; or "states", for an encoder
            without a head.
        name: "confidence": the largest probability reaches the threshold, or a regression's change is at most the
            threshold. "patience": the answer stayed the same for `threshold` steps (arXiv:2006.04152). "movement":
            |h_l - h_(l-1)| / |h_l| is below the threshold; h is the first token's hidden state or, for "tagging" and
            "states", those of all tokens.
        tolerance: largest change of a regression's number that "patience" ignores.
    """

    kind: str = "classification"
    name: str = "confidence"
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        refuse({
            f"early exit rule '{self.name}' is none of {', '.join(EXIT_RULES)}":
                self.name not in EXIT_RULES,
            f"early exit by {self.name} needs a model with exit heads; this one can leave by movement":
                self.kind == "states" and self.name != "movement",
        })  # fmt: skip

    @property
    def by_token(self) -> bool:
        return self.kind in ("tagging", "states")

    @property
    def reads_answers(self) -> bool:
        return self.name in ("confidence", "patience")

    @property
    def never(self) -> float:
        """Returns a threshold at which no row stops early."""
        numbers_move = self.kind == "regression" and self.name == "confidence"
        return -1.0 if numbers_move or self.name == "movement" else 1e9

    def decide(self, logits: Tensor, before: Tensor, unchanged: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Returns whether each answer is decided, bool [answers], and its number of unchanged steps, float32 [answers].

        `logits`, and the previous step's in `before`, are [answers, outputs of the head]. At the first step
        `before` is infinite and `unchanged` 0.
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


def tokens_and_threshold(features: dict[str, Tensor], threshold: Any) -> tuple[Tensor, Tensor]:
    """Returns where the tokens are, bool [batch, sequence], and a threshold for each row, float32 [batch]."""
    mask = ops.cast(features.get("input_mask", ops.ones_like(features["input_ids"])), "bool")
    return mask, ops.broadcast_to(ops.cast(threshold, "float32"), ops.shape(mask)[:1])


def movement(state: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """Returns each row's |state - before| / |state| over the tokens in `mask`, float32 [batch]; 0 if equal."""
    state, before = ops.cast(state, "float32"), ops.cast(before, "float32")
    moved, length = (
        ops.sum(ops.where(mask, ops.sum(ops.square(vectors), axis=-1), 0.0), axis=1)
        for vectors in (state - before, state)
    )
    return relative(moved, length)


def movements(rule: ExitRule, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
    """Returns the `movement` in each step but the last; `states` are the first step's input and every step's output."""
    if not rule.by_token:
        states, mask = [state[:, :1] for state in states], mask[:, :1]
    return [movement(state, before, mask) for before, state in itertools.pairwise(states[:-1])]


def relative(moved: Tensor, length: Tensor) -> Tensor:
    """Returns the ratio of two lengths, given their squares."""
    return ops.sqrt(moved / ops.maximum(length, 1e-30))


def leave(
    rule: ExitRule, every: Sequence[Tensor], moved: Sequence[Tensor], mask: Tensor, threshold: Tensor
) -> dict[str, Tensor]:
    """Selects each row's answer at the step where it exits.

    `every` has each step's logits or states, float32 [batch, ...]; `moved`, float32 [batch] for each step but the
    last, is for the rule "movement"; `mask` is bool [batch, sequence].

    Returns:
        dict of logits, shaped like one step's, and steps, int32 [batch], where rows exited.
    """
    batch, last, before = ops.shape(mask)[0], len(every), None
    answers = ops.shape(mask)[1] if rule.by_token else 1
    unchanged = ops.zeros(batch * answers)
    is_open, chosen, steps = ops.ones(batch, dtype="bool"), ops.zeros_like(every[0]), ops.zeros(batch, dtype="int32")
    for step, logits in enumerate(every, 1):
        chosen = ops.where(ops.reshape(is_open, (-1, *[1] * (len(logits.shape) - 1))), logits, chosen)
        steps = ops.where(is_open, step, steps)
        if step == last:
            break
        if rule.reads_answers:
            flat = ops.reshape(logits, (-1, logits.shape[-1]))
            before = ops.full_like(flat, float("inf")) if before is None else before
            decided, unchanged = rule.decide(flat, before, unchanged, ops.repeat(threshold, answers))
            before, decided = flat, ops.reshape(decided, (-1, answers))
            decided = ops.all(ops.logical_or(decided, ops.logical_not(mask)) if rule.by_token else decided, axis=1)
        else:
            decided = moved[step - 1] < threshold
        is_open = ops.logical_and(is_open, ops.logical_not(decided))
    return {"logits": chosen, "steps": steps}


def check_exits(config: AlbertConfig) -> None:
    """Raises UserError if an encoder's rows cannot exit early."""
    if config.pooling != "cls":
        raise UserError(f"early exit reads [CLS], and pooling '{config.pooling}' all tokens; leave out early exit")
    for one in config.extensions:
        if one.no_exits:
            raise UserError(
                f"early exit and {setting_of(config, one)} exclude each other: {one.no_exits}; leave one out"
            )
