"""Rules that decide a WordPiece tokenizer's ids and offsets, besides its vocabulary and case."""

import dataclasses
import json
from typing import Any

from tfrecords.tokenizers.added_tokens import AddedToken, tokenizer_json
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.row_template import as_template

# google-research/bert tokenization.py, and the default of the `tokenizers` library: longer words are unknown.
LONGEST_WORD, _LIBRARY_LONGEST_WORD = 200, 100


@dataclasses.dataclass(frozen=True)
class WordPieceRules:
    """A WordPiece tokenizer's rules besides vocabulary, case and accents; see `CharacterRules` and `Tokenizer`.

    strip_accents: whether accents are dropped even if case stays. longest_word: characters above which a word is
    unknown. names: (role, piece) of special pieces with unusual names. outside: added tokens in the vocabulary that
    WordPiece never matches.
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
    outside: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> "WordPieceRules":
        """Makes rules from the result of `values`.

        >>> rules = WordPieceRules(longest_word=50, added=(AddedToken("[E1]", 7, True),))
        >>> WordPieceRules.from_values(json.loads(json.dumps(rules.values()))) == rules
        True
        """
        names = tuple((role, piece) for role, piece in values.get("names", ()))
        added = tuple(AddedToken(**token) for token in values.get("added", ()))
        return cls(**values | {"names": names, "added": added, "outside": tuple(values.get("outside", ()))})

    def values(self) -> dict[str, Any]:
        """Returns the rules that differ from google-research/bert's, as JSON values."""
        values, plain = dataclasses.asdict(self), dataclasses.asdict(BERT_RULES)
        return {name: value for name, value in values.items() if value != plain[name]}

    def digest_text(self) -> str:
        """Returns the rules as text for a tokenizer's SHA-256; "" for BERT's and the `tokenizers` library's."""
        return "" if self in (BERT_RULES, LIBRARY_RULES) else json.dumps(self.values(), sort_keys=True)


BERT_RULES, LIBRARY_RULES = WordPieceRules(), WordPieceRules(of_library=True, longest_word=_LIBRARY_LONGEST_WORD)


def as_tokenizer_json(tokenizer: Tokenizer, rules: WordPieceRules) -> bytes:
    """Returns a tokenizer.json of the `tokenizers` library for a WordPiece tokenizer."""
    cls, sep = ((tokenizer.pieces[number], number) for number in (tokenizer.cls_id, tokenizer.sep_id))
    roles = [cls[1], sep[1], tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id]
    control = [AddedToken(tokenizer.pieces[number], number, special=True) for number in roles]
    normalizer = {"clean_text": rules.clean, "handle_chinese_chars": rules.chinese, "lowercase": tokenizer.lower_case}
    normalizer["strip_accents"] = (tokenizer.lower_case and not tokenizer.keep_accents) or rules.strip_accents
    model = {
        "type": "WordPiece",
        "unk_token": tokenizer.pieces[tokenizer.unk_id],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": rules.longest_word,
        "vocab": {piece: number for number, piece in enumerate(tokenizer.pieces) if piece not in rules.outside},
    }
    return tokenizer_json(
        [*control, *tokenizer.cut_tokens],
        normalizer={"type": "BertNormalizer"} | normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=as_template(cls, sep, rules.separators_between, rules.second_segment_id),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model=model,
    )
