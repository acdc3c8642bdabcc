"""Added tokens of a vocabulary, matched in texts before the rest is tokenized."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A string that is always one token.

    special: whether it is a control token such as [CLS], which is not matched in users' texts. lstrip,
    rstrip: whether white space before or after belongs to the token. normalized: whether it is matched in normalized
    text; by default, `not special`.
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
        return not self.normalized


def tokenizer_json(tokens: Iterable[AddedToken], **parts: dict[str, Any] | None) -> bytes:
    """Returns a tokenizer.json with these tokens and other parts."""
    values = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": _as_values(tokens)} | parts
    return json.dumps(values, ensure_ascii=False).encode()


def _as_values(tokens: Iterable[AddedToken]) -> list[dict[str, Any]]:
    return [
        {"id": token.id, "content": token.content, "single_word": False, "lstrip": token.lstrip}
        | {"rstrip": token.rstrip, "normalized": not token.is_cut_first, "special": token.special}
        for token in sorted(tokens, key=lambda token: token.id)
    ]
