"""How much of the texts of a task is longer than the model's rows."""

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Truncation:
    """How much of the texts of some examples does not fit into their rows.

    Attributes:
        texts: examples.
        truncated_texts: examples of which something was cut.
        tokens: of the whole texts.
        truncated_tokens: those of them that are in no row.
    """

    texts: int = 0
    truncated_texts: int = 0
    tokens: int = 0
    truncated_tokens: int = 0

    @classmethod
    def of(cls, tokens: np.ndarray, kept: np.ndarray) -> "Truncation":
        """Counts examples of which the texts have `tokens`, and the rows `kept` of them, both [examples]."""
        lost = np.asarray(tokens) - np.asarray(kept)
        return cls(len(lost), int(np.count_nonzero(lost)), int(np.sum(tokens)), int(lost.sum()))

    def __add__(self, other: "Truncation") -> "Truncation":
        return Truncation(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def shares(self) -> dict[str, float]:
        """Returns the shares of texts and of tokens that were truncated, 0 to 1."""
        return {
            "truncated_texts": self.truncated_texts / max(self.texts, 1),
            "truncated_tokens": self.truncated_tokens / max(self.tokens, 1),
        }

    def __str__(self) -> str:
        texts, tokens = self.shares().values()
        return f"{texts:.2%} of {self.texts:,} texts ({tokens:.2%} of their tokens)"


def truncation_line(splits: Mapping[str, Truncation]) -> str:
    """Says how much of the texts of each split was cut off."""
    return "truncated: " + ", ".join(f"{name} {lost}" for name, lost in splits.items())
