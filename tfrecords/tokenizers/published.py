"""Tokenizers in the files of others: the `tokenizers` library's, and what lies next to a vocabulary.

`other_files` says which of their steps and keys are known; here they are followed.
"""

import dataclasses
from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers import other_files
from tfrecords.tokenizers.added_tokens import AddedToken
from tfrecords.tokenizers.base import BY_IDS, Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.row_template import framing, pair_rules
from tfrecords.tokenizers.wordpiece_rules import BERT_RULES, LIBRARY_RULES, WordPieceRules

# The tokenizers library's file. Until 0.2 this library's description of a tokenizer had its name.
TOKENIZERS_FILE = "tokenizer.json"
_CONFIG, _MAP, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# Beside the vocabulary of a byte-level BPE.
_MERGES = "merges.txt"
_SPECIAL = {"cls": ("cls_token", "bos_token"), "sep": ("sep_token", "eos_token")} | {
    role: (f"{role}_token",) for role in ("pad", "unk", "mask")
}
# Of a lower-cased vocabulary at most a few signs have such letters; of a cased English one about 4 in 10 pieces.
_CASED_SHARE = 0.01
# Longer words would not fit the graph's operations.
_LONGEST_WORD = 100_000


class Beside:
    """What the files next to a vocabulary say.

    Args:
        folder: with the files.
        described: of a tokenizer.json of the `tokenizers` library; None: of the folder's, {} where there is none.
        where: the name of that file, for errors.

    Attributes:
        settings: of tokenizer_config.json and special_tokens_map.json.
        described: as given.
    """

    def __init__(self, folder: Path, described: dict[str, Any] | None = None, where: str = ""):
        self.folder, self.config = folder, _read_object(folder / _CONFIG)
        self.map = _read_object(folder / _MAP)
        self.settings = self.config | self.map
        own = _read_object(folder / TOKENIZERS_FILE)
        self.where = where or str(folder / TOKENIZERS_FILE)
        self.described = (own if "model" in own else {}) if described is None else described
        self._of_keras = own if "class_name" in own else {}

    def check(self, kind: str) -> None:
        """Raises UnknownTokenizer where a step or key is not followed; see `other_files`."""
        for name, values in ((_CONFIG, self.config), (_MAP, self.map)):
            other_files.check_config(values, kind, str(self.folder / name))
        if self.described:
            other_files.check_file(self.described, self.where)

    def steps(self, part: str) -> list[dict[str, Any]]:
        """The steps of a part of the tokenizer.json; none where there is no file."""
        return other_files.steps_of(self.described, part) if self.described else []

    def said(self, key: str, of_step: str) -> bool | None:
        """What tokenizer_config.json says by a key, or else BertNormalizer by its own."""
        found = [self.settings.get(key), *(step.get(of_step) for step in self.steps("normalizer"))]
        return next((value for value in found if isinstance(value, bool)), None)

    def lower_case(self) -> bool | None:
        """Whether text is lower-cased; None where nothing is said."""
        said = self.said("do_lower_case", "lowercase")
        if said is None and self.described:
            return any(step["type"] == "Lowercase" for step in self.steps("normalizer"))
        keras = self._of_keras.get("config", {}).get("lowercase")
        return keras if said is None and isinstance(keras, bool) else said

    def strips_accents(self) -> bool | None:
        """Whether accents are dropped; None where nothing is said, and it goes by the case."""
        keeps, steps = self.settings.get("keep_accents"), self.steps("normalizer")
        if isinstance(keeps, bool):
            return not keeps
        said = self.said("strip_accents", "strip_accents")
        if said is None and steps and steps[0]["type"] != "BertNormalizer":
            return any(step["type"] == "StripAccents" for step in steps)
        return said

    def roles(self) -> dict[str, str]:
        """The strings of special tokens that the files name."""
        found = {}
        for role, names in _SPECIAL.items():
            tokens = [self.settings[name] for name in names if self.settings.get(name)]
            if tokens:
                found[role] = _content(tokens[0])
        return found

    def added_tokens(self, ids: dict[str, int]) -> list[AddedToken]:
        """The tokens that the files add, by id; those that have none yet come after all others.

        Args:
            ids: of the pieces of the vocabulary.
        """
        tokens = {token["content"]: _added(token, token["id"]) for token in self.described.get("added_tokens") or []}
        for number, token in (self.settings.get("added_tokens_decoder") or {}).items():
            tokens.setdefault(token["content"], _added(token, int(number)))
        named = [self.settings[key] for key in other_files.ROLE_KEYS if self.settings.get(key)]
        for key in other_files.MORE_TOKENS_KEYS:
            more = self.settings.get(key) or []
            named += more.values() if isinstance(more, dict) else more
        special = {_content(token): token for token in named}
        for content, number in _read_object(self.folder / _ADDED).items():
            tokens.setdefault(content, AddedToken(content, int(number), content in special))
        for content, token in special.items():
            if content not in tokens:
                number = ids.get(content, max([*ids.values(), *(one.id for one in tokens.values())]) + 1)
                tokens[content] = _added(
                    {"special": True} | (token if isinstance(token, dict) else {}), number, content
                )
        return sorted(tokens.values(), key=lambda token: token.id)


def _content(token: str | dict[str, Any]) -> str:
    return token["content"] if isinstance(token, dict) else token


def _added(token: dict[str, Any], number: int, content: str = "") -> AddedToken:
    if token.get("single_word"):
        other_files.refuse(TOKENIZERS_FILE, f"adds {token['content']!r} as a word of its own (single_word)")
    flags = (bool(token.get(key)) for key in ("special", "lstrip", "rstrip"))
    return AddedToken(content or token["content"], number, *flags, normalized=token.get("normalized"))


def lowers_first(folder: Path) -> bool:
    """Returns whether a folder's transformer, as sentence-transformers reads it, gets its texts in lower case.

    The first of `other_files.SENTENCE_FILES` that is there says it, by "do_lower_case".
    """
    found = (folder / name for name in other_files.SENTENCE_FILES if (folder / name).is_file())
    return bool(_read_object(next(found, folder)).get("do_lower_case"))


def is_cased(tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary has pieces with capital letters, of whatever script."""
    special = set(tokenizer.special_ids.tolist())
    pieces = [piece for number, piece in enumerate(tokenizer.pieces) if number not in special and piece[:1] != "["]
    return sum(piece != piece.lower() for piece in pieces) > _CASED_SHARE * len(pieces)


def from_tokenizers(path: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    """Reads a tokenizer.json, whose vocabulary is inside.

    Args:
        path: the file.
        lower_case: whether text is lower-cased; None: what the files say.
        keep_accents: likewise.

    Raises:
        UserError: it is damaged, or (an UnknownTokenizer) of a kind, or with a step, that is not known.
    """
    values = _read_object(path)
    beside, kind = Beside(path.parent, values, str(path)), other_files.kind_of(values)
    if kind == "BPE":
        refuse_lower_case(lower_case, path)
        from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer

        # That it is one of characters is said before which of their steps are not known; of Unigram likewise.
        tokenizer = ByteBPETokenizer(_read(path), path=path, roles=beside.roles())
        beside.check("bpe")
        said = beside.settings.get("add_prefix_space")
        if said not in (None, tokenizer.rules.add_prefix_space):
            other_files.refuse(path.parent / _CONFIG, f"says add_prefix_space={said} and {path.name} does not")
        return tokenizer
    if kind == "Unigram":
        if not {"[CLS]", "<cls>"} & {piece for piece, _ in values["model"]["vocab"]}:
            raise UnknownTokenizer(
                f"'{path}' holds a unigram vocabulary without ALBERT's [CLS] or XLNet's <cls>, as XLM-RoBERTa's and "
                f"CamemBERT's are, which is not known here; {BY_IDS}"
            )
        return _unigram(beside, lower_case, keep_accents, path)
    if kind != "WordPiece":
        other_files.check_file(values, str(path))
    ids = {number: piece for piece, number in values["model"]["vocab"].items()}
    # A number that no piece has must not move those behind it.
    pieces = [ids.get(number, f"[unused_{number}]") for number in range(max(ids) + 1)]
    return wordpiece("".join(f"{piece}\n" for piece in pieces).encode(), beside, lower_case, keep_accents, path)


def from_merges(path: Path, lower_case: bool | None) -> Tokenizer:
    """Reads a byte-level BPE's vocab.json with the merges.txt beside it.

    Raises:
        UserError: there is no merges.txt, or they are damaged or do not belong together.
    """
    from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
    from tfrecords.tokenizers.byte_bpe_file import as_tokenizer_json, rules_of_files

    refuse_lower_case(lower_case, path)
    merges, beside = path.parent / _MERGES, Beside(path.parent)
    if not merges.is_file():
        raise UserError(f"'{path}' is a vocabulary without its merges; copy {_MERGES} beside it")
    beside.check("bpe")
    values = beside.settings
    settings = {"add_prefix_space": bool(values.get("add_prefix_space"))}
    settings |= {"trim_offsets": values.get("trim_offsets") is not False}
    settings["keep_first_space"] = settings["add_prefix_space"]
    roles, ids = beside.roles(), files.read_json(path)
    added = beside.added_tokens(ids) if isinstance(ids, dict) else []
    rules = rules_of_files(_read(path), _read(merges), roles, added, str(path), **settings)
    return ByteBPETokenizer(as_tokenizer_json(rules), path=path, roles=rules.roles)


def refuse_lower_case(lower_case: bool | None, path: Path) -> None:
    """Raises UserError where a byte-level BPE is to lower-case."""
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


def make_tokenizer(
    kind: str,
    vocabulary: bytes,
    lower_case: bool | None,
    keep_accents: bool | None,
    path: Path,
    rules: WordPieceRules = BERT_RULES,
) -> Tokenizer:
    """Makes a tokenizer of the kind "sentencepiece" or "wordpiece", lower-casing where nothing says otherwise."""
    # Only where there is a tokenizer: numba, which they compile with, takes half a second to import.
    if kind == "sentencepiece":
        from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(vocabulary, lower_case, path, keep_accents)
    from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(vocabulary, lower_case is not False, path, bool(keep_accents), rules)


def wordpiece(
    vocabulary: bytes, beside: Beside, lower_case: bool | None, keep_accents: bool | None, path: Path
) -> Tokenizer:
    """Makes a WordPiece tokenizer by what the files next to its vocabulary say.

    Args:
        vocabulary: a piece a line.
        beside: what the files say.
        lower_case: whether text is lower-cased; None: what they say, or else whether no pieces have capital letters.
        keep_accents: whether accents stay; None: what they say, or else no.
        path: the vocabulary's file, for errors.

    Raises:
        UserError: it is damaged, or (an UnknownTokenizer) the files say what is not followed.
    """
    beside.check("wordpiece")
    rules = _wordpiece_rules(beside)
    said = beside.lower_case() if lower_case is None else lower_case
    strips = beside.strips_accents() if keep_accents is None else False if keep_accents else None
    plain = make_tokenizer("wordpiece", vocabulary, said, strips is False, path, rules)
    lower = not is_cased(plain) if said is None else said
    described = beside.described["model"]["vocab"] if beside.described else {}
    _check_same_pieces(beside, plain.pieces, described, path)
    ids = described or {piece: number for number, piece in enumerate(plain.pieces)}
    own = other_files.CONTROL_TOKENS | {plain.pieces[getattr(plain, f"{role}_id")] for role in _SPECIAL}
    listed = beside.added_tokens(ids)
    pieces = list(plain.pieces)
    for token in listed:
        pieces += [f"[unused_{number}]" for number in range(len(pieces), token.id)]
        pieces += [token.content] * (token.id == len(pieces))
        if pieces[token.id] != token.content:
            other_files.refuse(beside.folder, f"adds {token.content!r} as {token.id}, which is {pieces[token.id]!r}")
    added = tuple(token for token in listed if token.content not in own)
    others = plain.pieces if path.suffix == ".txt" else []
    outside = tuple(dict.fromkeys(one for one in [*others, *(token.content for token in added)] if one not in ids))
    own_rules = dataclasses.replace(rules, added=added, outside=outside, strip_accents=bool(strips) and not lower)
    if (own_rules, lower, len(pieces)) == (rules, plain.lower_case, plain.vocab_size):
        return plain
    if len(pieces) > plain.vocab_size:
        vocabulary = "".join(f"{piece}\n" for piece in pieces).encode()
    return make_tokenizer("wordpiece", vocabulary, lower, strips is False, path, own_rules)


def _wordpiece_rules(beside: Beside) -> WordPieceRules:
    of_library = bool(beside.described) or any((beside.folder / name).is_file() for name in (_CONFIG, _MAP, _ADDED))
    rules = LIBRARY_RULES if of_library else BERT_RULES
    names = beside.roles()
    if beside.described:
        steps = {part: beside.steps(part) for part in ("normalizer", "pre_tokenizer")}
        types = [step["type"] for step in (*steps["normalizer"], *steps["pre_tokenizer"])]
        if types not in (["BertNormalizer", "BertPreTokenizer"], ["BertPreTokenizer"]):
            other_files.refuse(beside.where, f"has the normalizer and pre_tokenizer {', '.join(types) or 'none'}")
        model = beside.described["model"]
        longest = model.get("max_input_chars_per_word") or rules.longest_word
        if not 0 < longest <= _LONGEST_WORD:
            other_files.refuse(beside.where, f"has max_input_chars_per_word={longest}")
        ends, pair = framing(beside.steps("post_processor"), model["vocab"], beside.where)
        names |= ends | ({"unk": model["unk_token"]} if model.get("unk_token") else {})
        # Without a normalizer, characters stay as they are.
        is_normal = len(types) == 2
        rules = dataclasses.replace(rules, clean=is_normal, chinese=is_normal, longest_word=longest, **pair)
    for name, keys in (("clean", ("", "clean_text")), ("chinese", ("tokenize_chinese_chars", "handle_chinese_chars"))):
        said = beside.said(*keys)
        rules = rules if said is None else dataclasses.replace(rules, **{name: said})
    names = {role: piece for role, piece in names.items() if piece != f"[{role.upper()}]"}
    return dataclasses.replace(rules, names=tuple(sorted(names.items())))


def sentencepiece(
    vocabulary: bytes, beside: Beside, lower_case: bool | None, keep_accents: bool | None, path: Path
) -> Tokenizer:
    """Makes a tokenizer of a SentencePiece model by what the files next to it say; see `wordpiece`.

    A tokenizer.json next to it that has ALBERT's steps is not read: google-research/albert is followed, which ends
    pieces before a comma after a digit.
    """
    beside.check("sentencepiece")
    if beside.described:
        _check_unigram(beside)
    said = beside.lower_case() if lower_case is None else lower_case
    strips = beside.strips_accents() if keep_accents is None else not keep_accents
    tokenizer = make_tokenizer("sentencepiece", vocabulary, said, None if strips is None else not strips, path)
    vocabulary_there = dict(_numbered(beside.described["model"]["vocab"])) if beside.described else {}
    _check_same_pieces(beside, tokenizer.pieces, vocabulary_there, path)
    _refuse_added(beside, tokenizer.pieces)
    if said is None and not tokenizer.knows_case and is_cased(tokenizer):
        return make_tokenizer("sentencepiece", vocabulary, False, None if strips is None else not strips, path)
    return tokenizer


def _unigram(beside: Beside, lower_case: bool | None, keep_accents: bool | None, path: Path) -> Tokenizer:
    from tfrecords.tokenizers.unigram_file import as_model

    beside.check("sentencepiece")
    splits = _check_unigram(beside)
    said = beside.settings.get("do_lower_case"), beside.settings.get("keep_accents")
    lower, keep = (one if asked is None else asked for one, asked in zip(said, (lower_case, keep_accents)))
    values = beside.described
    special = {token["content"] for token in values.get("added_tokens") or [] if token.get("special")}
    model = as_model(values["model"], beside.steps("normalizer"), splits, special, lower, keep)
    _refuse_added(beside, [piece for piece, _ in values["model"]["vocab"]])
    return make_tokenizer("sentencepiece", model, None, None, path)


def _check_unigram(beside: Beside) -> bool:
    """Checks the order of a Unigram file's steps; returns whether words end at all white space."""
    from tfrecords.tokenizers.unigram_file import is_step_of_blanks, is_step_of_quotes

    steps = beside.steps("normalizer")
    inner = [step for step in steps if step["type"] != "Replace"]
    quotes = [step for step in steps if is_step_of_quotes(step)]
    blanks = [step for step in steps if is_step_of_blanks(step)]
    types = [step["type"] for step in steps]
    if [*quotes, *inner, *blanks] != steps or len(blanks) > 1 or types.count("Precompiled") > 1:
        other_files.refuse(beside.where, f"has the steps {', '.join(types)} of normalization in this order")
    pre = [step["type"] for step in beside.steps("pre_tokenizer")]
    if pre not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        other_files.refuse(beside.where, f"has the pre_tokenizer {', '.join(pre) or 'none'}")
    ids = dict(_numbered(beside.described["model"]["vocab"]))
    _, pair = framing(beside.steps("post_processor"), ids, beside.where, True)
    if pair not in ({}, pair_rules(1, 1)):
        other_files.refuse(beside.where, "frames pairs as RoBERTa does (post_processor)")
    return len(pre) > 1


def _check_same_pieces(beside: Beside, pieces: list[str], ids: dict[str, int], path: Path) -> None:
    for piece, number in ids.items():
        if number >= len(pieces) or pieces[number] != piece:
            other_files.refuse(beside.where, f"has the piece {piece!r} as {number}, not so '{path.name}'")


def _numbered(vocabulary: list) -> list[tuple[str, int]]:
    return [(piece, number) for number, (piece, _) in enumerate(vocabulary)]


def _refuse_added(beside: Beside, pieces: list[str]) -> None:
    ids = {piece: number for number, piece in enumerate(pieces)}
    own = other_files.CONTROL_TOKENS | set(beside.roles().values())
    added = [token.content for token in beside.added_tokens(ids) if token.content not in own]
    if added:
        other_files.refuse(beside.folder, f"adds the tokens {', '.join(added[:3])} to a Unigram vocabulary")
