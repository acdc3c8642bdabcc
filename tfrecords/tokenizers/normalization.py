"""Compiles ALBERT's text normalization into a SentencePiece model.

google-research/albert normalizes in Python (tokenization.py:33-50: white space collapsed, NFKD, combining marks
dropped, lower case; `` and '' become "), then applies the model's own rules (nmt_nfkc). Here the model's rules do both.
If accents stay, characters are composed (NFKC) instead of decomposed.
"""

import functools
import itertools
import re
import unicodedata

from sentencepiece import SentencePieceNormalizer, set_min_log_level
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.tokenizers.by_library import Blanks

set_min_log_level(2)

_ACCENTS = "_accents"
# The first word of the name of rules that are those of a tokenizer.json, and whole; see `unigram_file`.
LIBRARY_RULES = "tokenizers"


def rule_name(lower_case: bool, keep_accents: bool = False) -> str:
    """Returns the name of SentencePiece rules that include ALBERT's normalization."""
    return ("albert_lower" if lower_case else "albert_cased") + (_ACCENTS if keep_accents else "")


def own_rules(model: bytes) -> tuple[bool, bool] | tuple[None, None]:
    """Returns (lower case, accents stay) of a serialized model's rules if this library made them, else (None, None)."""
    spec = model_pb2.ModelProto.FromString(model).normalizer_spec
    flags = library_flags(spec)
    if flags is not None:
        return "lower" in flags, "accents" in flags
    known = {rule_name(*rules): rules for rules in itertools.product((True, False), repeat=2)}
    return known.get(spec.name, (None, None))


def library_flags(spec: model_pb2.NormalizerSpec) -> list[str] | None:
    """If normalization rules come from a tokenizer.json, returns their flags, such as "lower"; otherwise None."""
    first, *flags = spec.name.split() or [""]
    return flags if first == LIBRARY_RULES else None


def decompile(charsmap: bytes) -> list[tuple[str, str]]:
    """(Source, target) pairs in a SentencePiece model's `precompiled_charsmap`."""
    return normalizer_of(charsmap).decompile() if charsmap else []


def normalization_rules(charsmap: bytes, lower_case: bool, keep_accents: bool = False) -> list[tuple[str, str]]:
    """Returns (source, target) pairs of ALBERT's preprocessing followed by the rules of `charsmap`."""
    base, base_rules = normalizer_of(charsmap, remove_extra_whitespaces=False), dict(decompile(charsmap))
    changed = _changed_characters(lower_case, keep_accents)
    rules = {source: base.normalize(target) for source, target in changed.items()}
    for source, target in base_rules.items():
        if source in rules:
            continue
        if keep_accents:
            # U and a combining diaeresis, of which lower case changes one alone, are composed first: they are ü.
            rules[source] = base.normalize(target.lower() if lower_case else target)
        # ALBERT's step comes first: sequences with a character that it changes cannot occur any more.
        elif not any(character in changed for character in source):
            rules[source] = target
    rules["``"] = rules["''"] = '"'
    return sorted((source, target) for source, target in rules.items() if source != target)


def with_albert_normalization(model: bytes, lower_case: bool, keep_accents: bool = False) -> bytes:
    """Adds ALBERT's normalization to a serialized model, unless it has this or a tokenizer.json's normalization."""
    proto = model_pb2.ModelProto.FromString(model)
    name = rule_name(lower_case, keep_accents)
    spec = proto.normalizer_spec
    if spec.name == name or library_flags(spec) is not None:
        return model
    spec.precompiled_charsmap = _with_albert_first(spec.precompiled_charsmap, lower_case, keep_accents)
    spec.name = name
    return proto.SerializeToString(deterministic=True)


def blanks_of(model: bytes) -> Blanks | None:
    """Returns a serialized model's `Blanks`; None unless its rules come from a tokenizer.json."""
    spec = model_pb2.ModelProto.FromString(model).normalizer_spec
    flags = library_flags(spec)
    if flags is None:
        return None
    if not {"all_blanks", "last_blank"} & set(flags):
        return Blanks()
    rules = {" ": " "} | {source: target for source, target in decompile(spec.precompiled_charsmap) if len(source) == 1}
    dropped = "".join(source for source, target in rules.items() if not target)
    dropped = f"[{re.escape(dropped)}]*" if dropped else ""
    begins = "".join(source for source, target in rules.items() if target.startswith(" "))
    ends = "".join(source for source, target in rules.items() if target.endswith(" "))
    if "all_blanks" in flags:
        return Blanks(f"(?s:{dropped}([{re.escape(begins)}▁].*)?)")
    return Blanks("", f"(?s:.*[{re.escape(ends)}]{dropped})")


@functools.cache
def albert_normalizer(lower_case: bool, keep_accents: bool = False) -> SentencePieceNormalizer:
    """Returns an object whose `normalize` applies ALBERT's normalization, then nmt_nfkc."""
    published = charsmap_of(SentencePieceNormalizer(rule_name="nmt_nfkc"))
    return normalizer_of(_with_albert_first(published, lower_case, keep_accents))


def charsmap_of(normalizer: SentencePieceNormalizer) -> bytes:
    """The `precompiled_charsmap` of a normalizer."""
    return model_pb2.NormalizerSpec.FromString(normalizer.serialized_normalizer_spec()).precompiled_charsmap


def normalizer_of(charsmap: bytes, remove_extra_whitespaces: bool = True) -> SentencePieceNormalizer:
    """Returns an object whose `normalize` applies a `precompiled_charsmap` without escaping spaces."""
    return SentencePieceNormalizer(
        model_proto=model_pb2.ModelProto(normalizer_spec={"precompiled_charsmap": charsmap}).SerializeToString(),
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=remove_extra_whitespaces,
    )


# Takes 0.8 s for each published model; a process reads few.
@functools.lru_cache(maxsize=8)
def _with_albert_first(charsmap: bytes, lower_case: bool, keep_accents: bool) -> bytes:
    return charsmap_of(SentencePieceNormalizer(norm_map=normalization_rules(charsmap, lower_case, keep_accents)))


@functools.cache
def _changed_characters(lower_case: bool, keep_accents: bool) -> dict[str, str]:
    changed = {}
    for code in range(1, 0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Cs", "Co"):
            continue
        target = " " if character.isspace() else _preprocess(character, lower_case, keep_accents)
        if target != character:
            changed[character] = target
    return changed


def _preprocess(character: str, lower_case: bool, keep_accents: bool) -> str:
    if keep_accents:
        kept = unicodedata.normalize("NFKC", character)
    else:
        kept = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
    return kept.lower() if lower_case else kept
