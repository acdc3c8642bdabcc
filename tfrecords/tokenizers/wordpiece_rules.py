"""What decides the ids and offsets of a WordPiece tokenizer besides its vocabulary and its case."""

import dataclasses
import json
from typing import Any

from tfrecords.tokenizers.byte_bpe_file import AddedToken

# google-research/bert tokenization.py, and the default of the `tokenizers` library: longer words are unknown.
LONGEST_WORD, _LIBRARY_LONGEST_WORD = 200, 100


@dataclasses.dataclass(frozen=True)
class WordPieceRules:
    """All but the vocabulary, the case and the accents.

    Attributes:
        of_library: whether Unicode's classes are those of the `tokenizers` library, and not google-research/bert's.
        clean: whether control characters are dropped.
        chinese: whether each Chinese character is a word.
        strip_accents: whether accents are dropped though capitals stay.
        longest_word: characters of the longest word that is not unknown.
        names: (role, piece) of those special pieces that are not called [CLS], [SEP], [PAD], [UNK] and [MASK].
        separators_between: see `Tokenizer`.
        second_segment_id: see `Tokenizer`.
        added: tokens that are cut out of a text; those without a piece are left out.
    """

    of_library: bool = False
    clean: bool = True
    chinese: bool = True
    strip_accents: bool = False
    longest_word: int = LONGEST_WORD
    names: tuple[tuple[str, str], ...] = ()
    separators_between: int = 1
    second_segment_id: int = 1
    added: tuple[AddedToken, ...] = ()

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> "WordPieceRules":
        """Reads what `values` wrote.

        >>> rules = WordPieceRules(longest_word=50, added=(AddedToken("[E1]", 7, True),))
        >>> WordPieceRules.from_values(json.loads(json.dumps(rules.values()))) == rules
        True
        """
        names = tuple((role, piece) for role, piece in values.get("names", ()))
        added = tuple(AddedToken(**token) for token in values.get("added", ()))
        return cls(**values | {"names": names, "added": added})

    def values(self) -> dict[str, Any]:
        """Returns, as JSON holds it, in what they differ from those of google-research/bert."""
        values, plain = dataclasses.asdict(self), dataclasses.asdict(BERT_RULES)
        return {name: value for name, value in values.items() if value != plain[name]}

    def digest_text(self) -> str:
        """Returns what of them is part of a tokenizer's SHA-256.

        Not part of it are the two usual sets of rules: the same vocabulary with and without a tokenizer.json next to it
        is one tokenizer, though the two read private characters and words of more than 100 characters differently.
        """
        return "" if self in (BERT_RULES, LIBRARY_RULES) else json.dumps(self.values(), sort_keys=True)


BERT_RULES, LIBRARY_RULES = WordPieceRules(), WordPieceRules(of_library=True, longest_word=_LIBRARY_LONGEST_WORD)
