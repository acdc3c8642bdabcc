"""Converts a Unigram tokenizer.json to a SentencePiece model with the file's normalization.

All the file's steps become SentencePiece's rules, whose name stores how blanks at the ends of a text are handled.
"""

import base64
from collections.abc import Sequence
from typing import Any

from sentencepiece import SentencePieceNormalizer
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import WORD_BOUNDARY, AddedToken
from tfrecords.tokenizers.characters import BETWEEN, library_characters, normalizing, of_graphemes
from tfrecords.tokenizers.folders.row_template import as_template, tokenizer_json
from tfrecords.tokenizers.normalization import LIBRARY_RULES, charsmap_of, decompile, normalizer_of
from tfrecords.tokenizers.unicode_classes import SPACE, characters

_KINDS = model_pb2.ModelProto.SentencePiece
_QUOTES = ("``", "''")
# Of fairseq's control tokens, one has a score, which decides how much an unknown character costs.
_SCORES = {"<unk>NOTUSED": -100.0}


def is_step_of_blanks(step: dict[str, Any]) -> bool:
    """Whether a step replaces several blanks by one."""
    is_one = step["type"] == "Replace" and step["pattern"] == {"Regex": " {2,}"}
    return is_one and step["content"] in (" ", WORD_BOUNDARY)


def is_step_of_quotes(step: dict[str, Any]) -> bool:
    """Whether a step replaces doubled quotes (`` or '') like ALBERT."""
    return step["type"] == "Replace" and step["pattern"].get("String") in _QUOTES and step["content"] == '"'


def as_model(
    model: dict[str, Any],
    steps: list[dict[str, Any]],
    splits_at_white_space: bool,
    special: set[str],
    lower_case: bool | None,
    keep_accents: bool | None,
) -> bytes:
    """Makes a serialized SentencePiece model from a tokenizer.json's "model" and normalization `steps`.

    splits_at_white_space: whether any white space ends a word, not only blanks. special: pieces that are no text.
    lower_case, keep_accents: None to follow the steps.
    """
    proto = model_pb2.ModelProto()
    special = special - _SCORES.keys()
    for number, (piece, score) in enumerate(model["vocab"]):
        # The library splits words first, so that no piece spans two.
        kind = _KINDS.CONTROL if piece in special else _KINDS.UNUSED if WORD_BOUNDARY in piece[1:] else _KINDS.NORMAL
        proto.pieces.add(piece=piece, score=score, type=_KINDS.UNKNOWN if number == model["unk_id"] else kind)
    proto.trainer_spec.model_type = model_pb2.TrainerSpec.UNIGRAM
    proto.trainer_spec.unk_id = model["unk_id"]
    proto.trainer_spec.unk_piece = model["vocab"][model["unk_id"]][0]
    # Absent names, so that the library does not look for its defaults <s> and </s>.
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
    steps = _with_case_and_accents(steps, lower_case, keep_accents)
    types = {step["type"] for step in steps}
    one_blank = any(map(is_step_of_blanks, steps))
    of_fairseq = not {"[CLS]", "<cls>"}.intersection(piece for piece, _ in model["vocab"])
    flags = {"lower": "Lowercase" in types, "accents": (of_fairseq or bool(types)) and "StripAccents" not in types}
    if not splits_at_white_space:
        flags |= {"last_blank": one_blank and "Strip" not in types, "all_blanks": not one_blank}
    spec = proto.normalizer_spec
    spec.name = " ".join([LIBRARY_RULES, *(name for name, is_so in flags.items() if is_so)])
    if flags.get("all_blanks"):
        spec.add_dummy_prefix = spec.remove_extra_whitespaces = False
    rules = _rules(steps, splits_at_white_space)
    if rules:
        spec.precompiled_charsmap = charsmap_of(SentencePieceNormalizer(norm_map=rules))
    return proto.SerializeToString(deterministic=True)


# The pre-tokenizer of the class for fairseq's ids.
_WORDS = {"type": "Metaspace", "replacement": WORD_BOUNDARY, "prepend_scheme": "always", "split": True}


def shifted(model: bytes, first: Sequence[str]) -> bytes:
    """Returns a serialized SentencePiece model with fairseq's ids: pieces `first`, the model's others, then <mask>."""
    proto = model_pb2.ModelProto.FromString(model)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces if piece.piece not in first]
    vocab = [*((name, _SCORES.get(name, 0.0)) for name in first), *pieces, ("<mask>", 0.0)]
    steps = [step] if (step := _precompiled(proto)) else []
    special = {*first, "<s>", "</s>", "<mask>"}
    return as_model({"vocab": vocab, "unk_id": first.index("<unk>")}, steps, True, special, None, None)


def _precompiled(proto: model_pb2.ModelProto) -> dict[str, str] | None:
    charsmap = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    return {"type": "Precompiled", "precompiled_charsmap": charsmap} if charsmap else None


def as_tokenizer_json(tokenizer: Tokenizer) -> bytes:
    """Returns a tokenizer.json of a SentencePiece tokenizer with fairseq's ids."""
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    cls, sep = ((tokenizer.pieces[number], number) for number in (tokenizer.cls_id, tokenizer.sep_id))
    numbers = (number for number, piece in enumerate(proto.pieces) if piece.type in (_KINDS.CONTROL, _KINDS.UNKNOWN))
    special = [AddedToken(tokenizer.pieces[one], one, True, lstrip=one == tokenizer.mask_id) for one in numbers]
    vocab = [[piece.piece, piece.score] for piece in proto.pieces]
    return tokenizer_json(
        special,
        normalizer=_precompiled(proto),
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _WORDS]},
        post_processor=as_template(cls, sep, tokenizer.separators_between, tokenizer.second_segment_id),
        decoder=_WORDS,
        model={"type": "Unigram", "unk_id": tokenizer.unk_id, "vocab": vocab, "byte_fallback": False},
    )


def _with_case_and_accents(steps: list[dict], lower_case: bool | None, keep_accents: bool | None) -> list[dict]:
    types = [step["type"] for step in steps]
    drop = {"Lowercase": lower_case is False, "NFD": bool(keep_accents), "NFKD": bool(keep_accents)}
    drop |= {"StripAccents": bool(keep_accents)}
    changed = [step for step in steps if not drop.get(step["type"])]
    quotes = sum(map(is_step_of_quotes, changed))
    strip = [{"type": "NFKD"}, {"type": "StripAccents"}] * (keep_accents is False and "StripAccents" not in types)
    lower = [{"type": "Lowercase"}] * (bool(lower_case) and "Lowercase" not in types)
    return changed[:quotes] + strip + lower + changed[quotes:]


def _rules(steps: list[dict[str, Any]], splits_at_white_space: bool) -> list[tuple[str, str]]:
    at = next((number for number, step in enumerate(steps) if step["type"] == "Precompiled"), len(steps))
    charsmap = b"".join(base64.b64decode(step["precompiled_charsmap"]) for step in steps[at : at + 1])
    base, base_rules = normalizer_of(charsmap, remove_extra_whitespaces=False), dict(decompile(charsmap))
    before, after = (
        normalizing([step["type"] for step in part if step["type"] not in ("Replace", "Strip")])
        for part in (steps[:at], steps[at + 1 :])
    )
    white = str.maketrans(dict.fromkeys([*characters(SPACE), WORD_BOUNDARY], " "))

    def end(text: str) -> str:
        return after(text).translate(white if splits_at_white_space else {})

    # Of single characters, all together: that is fast. No step looks over the signs between them.
    single = library_characters()
    changed = dict(zip(single, before(BETWEEN.join(single)).split(BETWEEN)))
    mapped = [one for one, new in changed.items() if charsmap and (new != one or new in base_rules)]
    rules = changed | dict(zip(mapped, base.normalize([changed[one] for one in mapped]) if mapped else []))
    rules = dict(zip(rules, end(BETWEEN.join(rules.values())).split(BETWEEN)))
    # With a character that a step before changes, a sequence cannot be in what the map reads.
    gone = {one for one, new in changed.items() if new != one}
    sequences = [source for source in base_rules if len(source) > 1 and gone.isdisjoint(source)]
    targets = base_rules if at else of_graphemes(base_rules)
    rules |= {source: end(targets[source]) for source in sequences if source in targets}
    rules |= {step["pattern"]["String"]: end('"') for step in steps if is_step_of_quotes(step)}
    return sorted((source, target) for source, target in rules.items() if source != target)
