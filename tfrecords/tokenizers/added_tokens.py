"""Tokens that files add to a vocabulary, which are cut out of texts."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A string that is one token wherever it stands: cut out of a text before the rest is tokenized.

    Attributes:
        content: the string.
        id: the token.
        special: whether it is no text ([CLS]); in a user's text its string is text then.
        lstrip: whether white space before it belongs to it.
        rstrip: whether white space behind it belongs to it.
        normalized: whether it is cut out after those that are not, from text that is normalized; None: unless special.
    """

    content: str
    id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None

    def __post_init__(self):
        if self.normalized is None:
            object.__setattr__(self, "normalized", not self.special)

    @property
    def is_cut_first(self) -> bool:
        """Whether it is cut out of a text before the tokens that are not."""
        return not self.normalized


def tokenizer_json(tokens: Iterable[AddedToken], **parts: dict[str, Any] | None) -> bytes:
    """Returns a tokenizer.json that adds these tokens, of its other parts in their order."""
    values = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": _as_values(tokens)} | parts
    return json.dumps(values, ensure_ascii=False).encode()


def _as_values(tokens: Iterable[AddedToken]) -> list[dict[str, Any]]:
    return [
        {"id": token.id, "content": token.content, "single_word": False, "lstrip": token.lstrip}
        | {"rstrip": token.rstrip, "normalized": not token.is_cut_first, "special": token.special}
        for token in sorted(tokens, key=lambda token: token.id)
    ]
