"""Tokenizers in the files of others: the `tokenizers` library's, and what lies beside a vocabulary."""

import base64
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceNormalizer
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import BY_IDS, Tokenizer, UnknownTokenizer

# The tokenizers library's file. Until 0.2 this library's description of a tokenizer had its name.
TOKENIZERS_FILE = "tokenizer.json"
# Beside the vocabulary of a byte-level BPE.
_MERGES = "merges.txt"
_SPECIAL = {"cls": ("cls_token", "bos_token"), "sep": ("sep_token", "eos_token")} | {
    role: (f"{role}_token",) for role in ("pad", "unk", "mask")
}
# Of a lower-cased vocabulary at most a few signs have such letters; of a cased English one about 4 in 10 pieces.
_CASED_SHARE = 0.01
# What files beside a WordPiece vocabulary say where BERT's way to part text into words is not theirs.
_NOT_BERT = {
    "tokenizer_class": ("BertJapaneseTokenizer",),
    "word_tokenizer_type": ("mecab", "sudachi", "jumanpp"),
    "subword_tokenizer_type": ("character", "sentencepiece"),
    **dict.fromkeys(("tokenize_chinese_chars", "handle_chinese_chars", "clean_text", "do_basic_tokenize"), (False,)),
}
_BERT_STEPS = {"BertNormalizer", "BertPreTokenizer"}


def said_lower_case(folder: Path) -> bool | None:
    """Whether the files beside a published vocabulary say that text is lower-cased; None where they say nothing."""
    values = _read_object(folder / "tokenizer_config.json").get("do_lower_case")
    if isinstance(values, bool):
        return values
    description = _read_object(folder / TOKENIZERS_FILE)
    if "class_name" in description:
        said = description.get("config", {}).get("lowercase")
        return said if isinstance(said, bool) else None
    return _lower_cases(description) if "model" in description else None


def said_accents(folder: Path) -> bool | None:
    """Whether the files beside a published vocabulary say that accents stay; None where they say nothing."""
    values = _read_object(folder / "tokenizer_config.json")
    # ALBERT's name for it, and BERT's, whose `null` goes by the case.
    if isinstance(values.get("keep_accents"), bool):
        return values["keep_accents"]
    if isinstance(values.get("strip_accents"), bool):
        return not values["strip_accents"]
    description = _read_object(folder / TOKENIZERS_FILE)
    return _keeps_accents(description) if "model" in description else None


def is_cased(tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary has pieces with capital letters, of whatever script."""
    special = set(tokenizer.special_ids.tolist())
    pieces = [piece for number, piece in enumerate(tokenizer.pieces) if number not in special and piece[:1] != "["]
    return sum(piece != piece.lower() for piece in pieces) > _CASED_SHARE * len(pieces)


def checked(tokenizer: Tokenizer, folder: Path, description: dict[str, Any] | None = None) -> Tokenizer:
    """Gives a tokenizer back that does what the files beside its vocabulary say.

    Args:
        tokenizer: of a WordPiece or SentencePiece vocabulary.
        folder: with the files.
        description: of the tokenizer.json that holds the vocabulary; None: of the folder's, where there is one.

    Raises:
        UnknownTokenizer: they say what it does not do.
    """
    if description is None:
        description = _read_object(folder / TOKENIZERS_FILE)
    settings = _read_object(folder / "tokenizer_config.json")
    if tokenizer.kind == "wordpiece" and (others := _other_rules(settings, description)):
        raise UnknownTokenizer(
            f"beside the vocabulary in '{folder}' stands {', '.join(others)}, by which text is not parted as BERT's "
            f"is; {BY_IDS}"
        )
    if new := _new_tokens(settings, folder, description) - {*tokenizer.pieces}:
        raise UnknownTokenizer(
            f"'{folder}' adds {', '.join(sorted(new)[:3])} to the pieces of its vocabulary, which is known of "
            f"byte-level BPE alone; {BY_IDS}"
        )
    return tokenizer


def _other_rules(settings: dict, description: dict) -> list[str]:
    """The rules of a WordPiece vocabulary that are not BERT's."""
    sources = [settings, *_normalizers(description)]
    others = [
        f"{name}={source[name]}"
        for source in sources
        for name, values in _NOT_BERT.items()
        if source.get(name) in values
    ]
    for source in sources:
        # BERT's accents go with the capitals alone.
        if source.get("strip_accents") is True and False in (source.get("do_lower_case"), source.get("lowercase")):
            others.append("strip_accents=True of text that keeps its capitals")
    steps = {step.get("type") for step in (*_normalizers(description), description.get("pre_tokenizer") or {})}
    if "model" in description and steps - {None, "Sequence"} != _BERT_STEPS:
        others.append(f"normalizer and pre_tokenizer of {', '.join(sorted(map(str, steps - {None}))) or 'no kind'}")
    return others


def _new_tokens(settings: dict, folder: Path, description: dict) -> set[str]:
    """The tokens that the files beside a vocabulary add to be found in texts: those of special ones are text."""
    described = [*(settings.get("added_tokens_decoder") or {}).values(), *(description.get("added_tokens") or [])]
    named = settings | _read_object(folder / "special_tokens_map.json")
    special = {token["content"] for token in described if token.get("special")} | set(_roles(folder).values())
    for token in named.get("additional_special_tokens") or []:
        special.add(token["content"] if isinstance(token, dict) else token)
    return {*_read_object(folder / "added_tokens.json"), *(token["content"] for token in described)} - special


def from_tokenizers(path: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    """Reads a tokenizer.json, whose vocabulary is inside.

    Args:
        path: the file.
        lower_case: whether text is lower-cased; None: what the files say.
        keep_accents: likewise.

    Raises:
        UserError: it is damaged, or (an UnknownTokenizer) of a kind that is not known.
    """
    values = _read_object(path)
    model = values.get("model") or {}
    # Files of its first versions do not name the kind.
    unnamed = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    kind = model.get("type") or unnamed
    if kind == "BPE":
        _refuse_lower_case(lower_case, path)
        from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer

        return ByteBPETokenizer(_read(path), path=path, roles=_roles(path.parent))
    makers = {"WordPiece": _wordpiece, "Unigram": _unigram}
    if kind not in makers:
        raise UnknownTokenizer(
            f"'{path}' holds a {kind} tokenizer, known are {', '.join(makers)} and BPE of bytes; {BY_IDS}"
        )
    said = _read_object(path.parent / "tokenizer_config.json").get("do_lower_case")
    if lower_case is None:
        lower_case = said if isinstance(said, bool) else _lower_cases(values)
    keep_accents = _keeps_accents(values) if keep_accents is None else keep_accents
    try:
        return checked(makers[kind](values, lower_case, path, keep_accents), path.parent, values)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"'{path}' is no tokenizer that the `tokenizers` library wrote; copy it again") from error


def from_merges(path: Path, lower_case: bool | None) -> Tokenizer:
    """Reads a byte-level BPE's vocab.json with the merges.txt beside it.

    Raises:
        UserError: there is no merges.txt, or they are damaged or do not belong together.
    """
    from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
    from tfrecords.tokenizers.byte_bpe_file import as_tokenizer_json, rules_of_files

    _refuse_lower_case(lower_case, path)
    merges, folder = path.parent / _MERGES, path.parent
    if not merges.is_file():
        raise UserError(f"'{path}' is a vocabulary without its merges; copy {_MERGES} beside it")
    values, roles = _read_object(folder / "tokenizer_config.json"), _roles(folder)
    settings = {"add_prefix_space": bool(values.get("add_prefix_space"))}
    settings |= {"trim_offsets": values.get("trim_offsets") is not False}
    settings["keep_first_space"] = settings["add_prefix_space"]
    rules = rules_of_files(_read(path), _read(merges), roles, _added_tokens(folder), str(path), **settings)
    return ByteBPETokenizer(as_tokenizer_json(rules), path=path, roles=rules.roles)


def _refuse_lower_case(lower_case: bool | None, path: Path) -> None:
    if lower_case:
        raise UserError(f"the byte-level BPE of '{path}' keeps text as it is; leave out --lower_case")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read tokenizer '{path}': {error.strerror}") from error


def _read_object(path: Path) -> dict[str, Any]:
    values = files.read_json(path) if path.is_file() else {}
    return values if isinstance(values, dict) else {}


def _roles(folder: Path) -> dict[str, str]:
    """The strings of special tokens that the files beside a vocabulary name."""
    values = _read_object(folder / "tokenizer_config.json") | _read_object(folder / "special_tokens_map.json")
    found = {}
    for role, names in _SPECIAL.items():
        tokens = [values[name] for name in names if values.get(name)]
        if tokens:
            found[role] = tokens[0].get("content") if isinstance(tokens[0], dict) else tokens[0]
    return found


def _added_tokens(folder: Path) -> list:
    """The tokens that files beside vocab.json add to it."""
    from tfrecords.tokenizers.byte_bpe_file import AddedToken

    path = folder / "tokenizer_config.json"
    decoder = _read_object(path).get("added_tokens_decoder") or {}
    tokens = [
        AddedToken(name, int(number), False) for name, number in _read_object(folder / "added_tokens.json").items()
    ]
    for number, token in decoder.items():
        flags = (bool(token.get(key)) for key in ("special", "lstrip", "rstrip"))
        tokens.append(AddedToken(token["content"], int(number), *flags))
    return tokens


def make_tokenizer(
    kind: str, vocabulary: bytes, lower_case: bool | None, keep_accents: bool | None, path: Path
) -> Tokenizer:
    """Makes a tokenizer of the kind "sentencepiece" or "wordpiece", lower-casing where nothing says otherwise."""
    # Only where there is a tokenizer: numba, which they compile with, takes half a second to import.
    if kind == "sentencepiece":
        from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(vocabulary, lower_case, path, keep_accents)
    from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(vocabulary, lower_case is not False, path, bool(keep_accents))


def _wordpiece(values: dict, lower_case: bool, path: Path, keep_accents: bool) -> Tokenizer:
    model = values["model"]
    if model.get("continuing_subword_prefix", "##") != "##":
        raise UnknownTokenizer(
            f"'{path}' marks the inside of words by '{model['continuing_subword_prefix']}', known is '##'; {BY_IDS}"
        )
    ids = {number: piece for piece, number in model["vocab"].items()}
    # A number that no piece has must not move those behind it.
    pieces = [ids.get(number, f"[unused_{number}]") for number in range(max(ids) + 1)]
    return make_tokenizer("wordpiece", ("\n".join(pieces) + "\n").encode(), lower_case, keep_accents, path)


def _unigram(values: dict, lower_case: bool, path: Path, keep_accents: bool) -> Tokenizer:
    model, kinds = values["model"], model_pb2.ModelProto.SentencePiece
    if not {"[CLS]", "<cls>"} & {piece for piece, _ in model["vocab"]}:
        raise UnknownTokenizer(
            f"'{path}' holds a unigram vocabulary without ALBERT's [CLS] or XLNet's <cls>, as XLM-RoBERTa's and "
            f"CamemBERT's are, which is not known here; {BY_IDS}"
        )
    special = {token["content"] for token in values.get("added_tokens") or [] if token.get("special")}
    proto = model_pb2.ModelProto()
    for number, (piece, score) in enumerate(model["vocab"]):
        kind = kinds.CONTROL if piece in special else kinds.NORMAL
        proto.pieces.add(piece=piece, score=score, type=kinds.UNKNOWN if number == model["unk_id"] else kind)
    proto.trainer_spec.model_type = model_pb2.TrainerSpec.UNIGRAM
    proto.trainer_spec.unk_id = model["unk_id"]
    proto.trainer_spec.unk_piece = model["vocab"][model["unk_id"]][0]
    # Absent ones: the library must not look for its defaults <s> and </s>.
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
    # One of ALBERT's own rules: a model without any could not be given the others.
    quotes = SentencePieceNormalizer(norm_map=[("``", '"')])
    proto.normalizer_spec.MergeFromString(quotes.serialized_normalizer_spec())
    proto.normalizer_spec.name = "tokenizers"
    for step in _normalizers(values):
        if step.get("type") == "Precompiled":
            proto.normalizer_spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
    return make_tokenizer("sentencepiece", proto.SerializeToString(deterministic=True), lower_case, keep_accents, path)


def _normalizers(values: dict) -> list[dict]:
    """The steps of normalisation, out of whatever sequences they stand in."""
    step = values.get("normalizer") or {}
    return sum((_normalizers({"normalizer": inner}) for inner in step.get("normalizers", [])), [step])


def _lower_cases(values: dict) -> bool:
    steps = _normalizers(values)
    return any(step.get("type") == "Lowercase" or step.get("lowercase") is True for step in steps)


def _keeps_accents(values: dict) -> bool:
    """Whether no step strips accents, though some step is there."""
    steps = [step for step in _normalizers(values) if step]
    bert = [step for step in steps if step.get("type") == "BertNormalizer"]
    if bert:
        return bert[0].get("strip_accents") is False
    return bool(steps) and not any(step.get("type") == "StripAccents" for step in steps)
