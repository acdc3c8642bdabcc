"""ALBERT's text normalisation compiled into the SentencePiece model itself.

google-research/albert normalises in Python (tokenization.py:33-50: white space collapsed, NFKD, combining marks
dropped, lower case; `` and '' become " in the preprocessing that it comes from) and then runs the model, whose own
rules (nmt_nfkc) come on top. Both are maps over characters, so their composition is one more set of rules of the kind
that a SentencePiece model carries. With these inside, plain SentencePiece, in any language or graph, normalises as
ALBERT does.
"""

import functools
import unicodedata

from sentencepiece import SentencePieceNormalizer, set_min_log_level
from sentencepiece import sentencepiece_model_pb2 as model_pb2

set_min_log_level(2)

# Rules are stored under this name, which tells a rewritten model from one that is as published.
RULE_NAME = "albert_lower"
RULE_NAME_CASED = "albert_cased"


def normalization_rules(base: SentencePieceNormalizer, lower_case: bool) -> list[tuple[str, str]]:
    """(source, target) pairs equal to ALBERT's preprocessing followed by the rules of `base`."""
    base_rules = dict(base.decompile())
    changed = _changed_characters(lower_case)
    rules = {source: base.normalize(target) for source, target in changed.items()}
    for source, target in base_rules.items():
        # A sequence with a character that ALBERT's step changes can no longer occur when `base` comes to look.
        if source not in rules and not any(character in changed for character in source):
            rules[source] = target
    rules["``"] = rules["''"] = '"'
    return sorted((source, target) for source, target in rules.items() if source != target)


def with_albert_normalization(model: bytes, lower_case: bool) -> bytes:
    """A SentencePiece model (serialised) with ALBERT's normalisation in its rules; unchanged if it has it already."""
    proto = model_pb2.ModelProto.FromString(model)
    name = RULE_NAME if lower_case else RULE_NAME_CASED
    if proto.normalizer_spec.name == name:
        return model
    base = SentencePieceNormalizer(
        model_proto=model, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )
    rules = normalization_rules(base, lower_case)
    compiled = model_pb2.NormalizerSpec.FromString(SentencePieceNormalizer(norm_map=rules).serialized_normalizer_spec())
    proto.normalizer_spec.name = name
    proto.normalizer_spec.precompiled_charsmap = compiled.precompiled_charsmap
    return proto.SerializeToString(deterministic=True)


@functools.cache
def albert_normalizer(lower_case: bool) -> SentencePieceNormalizer:
    """ALBERT's whole normalisation on top of nmt_nfkc, as an object whose `normalize` takes text to text."""
    base = SentencePieceNormalizer(
        rule_name="nmt_nfkc", add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )
    return SentencePieceNormalizer(
        norm_map=normalization_rules(base, lower_case),
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=True,
    )


@functools.cache
def _changed_characters(lower_case: bool) -> dict[str, str]:
    """Every character that ALBERT's preprocessing changes, with what it becomes."""
    changed = {}
    for code in range(1, 0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Cs", "Co"):
            continue
        target = " " if character.isspace() else _strip_accents(character, lower_case)
        if target != character:
            changed[character] = target
    return changed


def _strip_accents(character: str, lower_case: bool) -> str:
    kept = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
    return kept.lower() if lower_case else kept
