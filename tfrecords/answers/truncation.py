import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Truncation:
    """Counts examples, tokens, and how many of each were truncated."""

    texts: int = 0
    truncated_texts: int = 0
    tokens: int = 0
    truncated_tokens: int = 0

    @classmethod
    def of(cls, tokens: np.ndarray, kept: np.ndarray) -> "Truncation":
        lost = np.asarray(tokens) - np.asarray(kept)
        return cls(len(lost), int(np.count_nonzero(lost)), int(np.sum(tokens)), int(lost.sum()))

    def __add__(self, other: "Truncation") -> "Truncation":
        return Truncation(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def shares(self) -> dict[str, float]:
        return {
            "truncated_texts": self.truncated_texts / max(self.texts, 1),
            "truncated_tokens": self.truncated_tokens / max(self.tokens, 1),
        }

    def __str__(self) -> str:
        texts, tokens = self.shares().values()
        return f"{texts:.2%} of {self.texts:,} texts ({tokens:.2%} of their tokens)"


def truncation_line(splits: Mapping[str, Truncation]) -> str:
    """Returns one line of text on the truncation of all splits."""
    return "truncated: " + ", ".join(f"{name} {lost}" for name, lost in splits.items())
