"""Makes tokenizers from a tokenizer.json, or from vocabularies with transformers' settings.

Each kind of tokenizer is imported by the function that makes it.
"""

import dataclasses
from pathlib import Path
from typing import Any

from absl import logging

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer, check_last_id, pieces_by_id
from tfrecords.tokenizers.folders import other_files
from tfrecords.tokenizers.folders.folder_files import ROLES, FolderFiles, read_file
from tfrecords.tokenizers.folders.row_template import framing, pair_rules, usual_pair
from tfrecords.tokenizers.wordpiece import BERT_RULES, LIBRARY_RULES, WordPieceRules, WordPieceTokenizer

# Next to the vocabulary of a byte-level BPE.
_MERGES = "merges.txt"
# In a lower-cased vocabulary at most a few symbols have capital letters; in a cased English one about 4 in 10 do.
_CASED_SHARE = 0.01
# The graph's operations cannot take longer words.
_LONGEST_WORD = 100_000


def is_cased(tokenizer: Tokenizer) -> bool:
    """Whether more than 1 % of the pieces have capital letters."""
    special = set(tokenizer.special_ids.tolist())
    pieces = [piece for number, piece in enumerate(tokenizer.pieces) if number not in special and piece[:1] != "["]
    return sum(piece != piece.lower() for piece in pieces) > _CASED_SHARE * len(pieces)


def from_tokenizers(path: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    """Makes a tokenizer from a tokenizer.json, which includes the vocabulary."""
    values = files.read_json(path)
    near, kind = FolderFiles(path.parent, values, str(path)), other_files.kind_of(values)
    if kind == "BPE":
        from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
        from tfrecords.tokenizers.bytes.byte_bpe_file import ROBERTA, as_tokenizer_json

        refuse_lower_case(lower_case, path)
        if other_files.is_of_library(values):
            from tfrecords.tokenizers.bytes.library_bpe import LibraryBPETokenizer

            near.check("bpe")
            found = LibraryBPETokenizer(read_file(path), path=path, roles=near.roles())
            _refuse_more(near, found.rules)
            known = values["model"]["vocab"].keys() | other_files.CONTROL_TOKENS | set(found.rules.roles.values())
            special = [token.content for token in found.rules.added if token.special and token.content not in known]
            # Llama's own are for chats.
            if own := [content for content in special if not content.startswith("<|")]:
                logging.warning(
                    "'%s': the special tokens %s in a text are text here, and tokens in transformers",
                    *(path, ", ".join(map(repr, own[:5]))),
                )
            return found
        # That it is one of characters is said before which of their steps are not known; of Unigram likewise.
        tokenizer = ByteBPETokenizer(read_file(path), path=path, roles=near.roles())
        near.check("bpe")
        _refuse_more(near, tokenizer.rules)
        made = {name: near.choose(key, getattr(tokenizer.rules, name), usual) for name, (key, usual) in ROBERTA.items()}
        rules = dataclasses.replace(tokenizer.rules, **made)
        if rules == tokenizer.rules:
            return tokenizer
        rules = dataclasses.replace(rules, keep_first_space=rules.add_prefix_space)
        return ByteBPETokenizer(as_tokenizer_json(rules), path=path, roles=rules.roles)
    if kind == "Unigram":
        return _unigram(near, lower_case, keep_accents, path)
    if kind != "WordPiece":
        other_files.check_file(values, str(path))
    pieces = pieces_by_id(values["model"]["vocab"], "[unused_{}]", path)
    return wordpiece("".join(f"{piece}\n" for piece in pieces).encode(), near, lower_case, keep_accents, path)


def _refuse_more(near: FolderFiles, rules: Any) -> None:
    # Tokens that only the files beside a tokenizer.json add.
    names = {token.content for token in rules.added}
    listed = [token for token in near.added_tokens(rules.ids) if token.content not in names]
    if more := [token.content for token in listed if not (token.special and token.content in rules.ids)]:
        other_files.refuse(near.folder, f"adds the tokens {', '.join(more[:3])}, which {near.where} has not")


def from_merges(path: Path, lower_case: bool | None) -> Tokenizer:
    """Makes a byte-level BPE from vocab.json and merges.txt.

    Raises UserError if they are missing, damaged or inconsistent.
    """
    from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
    from tfrecords.tokenizers.bytes.byte_bpe_file import as_tokenizer_json, rules_of_files

    refuse_lower_case(lower_case, path)
    merges, near = path.parent / _MERGES, FolderFiles(path.parent)
    if not merges.is_file():
        raise UserError(f"'{path}' is a vocabulary without its merges; copy {_MERGES} beside it")
    near.check("bpe")
    values = near.settings
    settings = {"add_prefix_space": bool(values.get("add_prefix_space"))}
    settings |= {"trim_offsets": values.get("trim_offsets") is not False}
    settings["keep_first_space"] = settings["add_prefix_space"]
    roles, ids = near.roles(), files.read_json(path)
    added = near.added_tokens(ids) if isinstance(ids, dict) else []
    rules = rules_of_files(read_file(path), read_file(merges), roles, added, str(path), **settings)
    return ByteBPETokenizer(as_tokenizer_json(rules), path=path, roles=rules.roles)


def refuse_lower_case(lower_case: bool | None, path: Path) -> None:
    """Raises UserError if `lower_case` is requested of a byte-level BPE."""
    if lower_case:
        raise UserError(f"the byte-level BPE of '{path}' keeps text as it is; leave out --lower_case")


def wordpiece(
    vocabulary: bytes, near: FolderFiles, lower_case: bool | None, keep_accents: bool | None, path: Path
) -> Tokenizer:
    """Makes a WordPiece tokenizer with the settings in the files next to its vocabulary.

    Options of None follow these files; without files, text is lower-cased unless the vocabulary `is_cased`, and
    lower-cased text loses its accents.
    """
    near.check("wordpiece")
    pieces = vocabulary.decode("utf-8", "replace").splitlines()
    if sum(piece[:1] == "▁" < piece for piece in pieces) > sum(piece[:2] == "##" for piece in pieces):
        other_files.refuse(path, "holds the pieces of a SentencePiece vocabulary (▁...)")
    rules = _wordpiece_rules(near)
    said = near.said("do_lower_case") if lower_case is None else lower_case
    strips = near.said("strip_accents") if keep_accents is None else False if keep_accents else None
    plain = WordPieceTokenizer(vocabulary, said is not False, path, strips is False, rules)
    lower = not is_cased(plain) if said is None else said
    if lower_case is None:
        _warn_of_case(near, lower, plain)
    described = near.described["model"]["vocab"] if near.described else {}
    _check_same_pieces(near, plain.pieces, described, path)
    ids = described or plain.piece_ids
    own = other_files.CONTROL_TOKENS | {plain.pieces[getattr(plain, f"{role}_id")] for role in ROLES}
    listed = near.added_tokens(ids)
    pieces = list(plain.pieces)
    for token in listed:
        check_last_id(token.id, len(pieces), path)
        pieces += [f"[unused_{number}]" for number in range(len(pieces), token.id)]
        pieces += [token.content] * (token.id == len(pieces))
        if pieces[token.id] != token.content:
            other_files.refuse(near.folder, f"adds {token.content!r} as {token.id}, which is {pieces[token.id]!r}")
    added = tuple(token for token in listed if token.content not in own)
    others = plain.pieces if path.suffix == ".txt" else []
    outside = tuple(dict.fromkeys(one for one in [*others, *(token.content for token in listed)] if one not in ids))
    own_rules = dataclasses.replace(rules, added=added, outside=outside, strip_accents=bool(strips) and not lower)
    if (own_rules, lower, len(pieces)) == (rules, plain.lower_case, plain.vocab_size):
        return plain
    if len(pieces) > plain.vocab_size:
        vocabulary = "".join(f"{piece}\n" for piece in pieces).encode()
    return WordPieceTokenizer(vocabulary, lower, path, strips is False, own_rules)


def _warn_of_case(near: FolderFiles, lower: bool, tokenizer: Tokenizer) -> None:
    is_said = near.described or "do_lower_case" in near.settings
    if near.of_model and not lower and not is_said and is_cased(tokenizer):
        logging.warning(
            "no tokenizer_config.json in '%s' says do_lower_case; texts keep their case, as the vocabulary does, but "
            "transformers lower-cases them",
            near.folder,
        )


def _wordpiece_rules(near: FolderFiles) -> WordPieceRules:
    rules = LIBRARY_RULES if near.is_of_library else BERT_RULES
    names, usual_pair = near.roles(others=False), pair_rules(*near.pair)
    rules = dataclasses.replace(rules, **usual_pair)
    if near.described:
        steps = [*near.steps("normalizer")[near.lowers_first :], *near.steps("pre_tokenizer")]
        types = [step["type"] for step in steps]
        if types not in (["BertNormalizer", "BertPreTokenizer"], ["BertPreTokenizer"]):
            other_files.refuse(near.where, f"has the normalizer and pre_tokenizer {', '.join(types) or 'none'}")
        model = near.described["model"]
        usual = rules.longest_word
        longest = near.choose("max_input_chars_per_word", model.get("max_input_chars_per_word") or usual, usual)
        if not 0 < longest <= _LONGEST_WORD:
            other_files.refuse(near.where, f"has max_input_chars_per_word={longest}")
        ends, pair = framing(near.steps("post_processor"), model["vocab"], near.where)
        pair = near.choose("post_processor", pair or usual_pair, usual_pair)
        names |= ends | ({"unk": model["unk_token"]} if model.get("unk_token") else {})
        rules = dataclasses.replace(rules, longest_word=longest, **pair)
    for name, key in (("clean", "clean_text"), ("chinese", "tokenize_chinese_chars")):
        said = near.said(key)
        rules = rules if said is None else dataclasses.replace(rules, **{name: said})
    names = {role: piece for role, piece in names.items() if piece != f"[{role.upper()}]"}
    return dataclasses.replace(rules, names=tuple(sorted(names.items())))


def sentencepiece(
    vocabulary: bytes, near: FolderFiles, lower_case: bool | None, keep_accents: bool | None, path: Path
) -> Tokenizer:
    """Makes a tokenizer from a SentencePiece model with the settings next to it; see `wordpiece`.

    A comma after a digit is a piece of its own, as in google-research/albert, unlike in ALBERT's tokenizer.json.
    """
    from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
    from tfrecords.tokenizers.unigram_file import shifted

    near.check("sentencepiece")
    if near.described:
        _check_unigram(near)
    elif near.fairseq:
        return SentencePieceTokenizer(shifted(vocabulary, near.fairseq), path=path)
    if keep_accents is None and (near.described or "keep_accents" in near.settings):
        keep_accents = not near.strips_accents()
    tokenizer = SentencePieceTokenizer(vocabulary, lower_case, path, keep_accents)
    _check_same_pieces(near, tokenizer.pieces, _ids_in(near) if near.described else {}, path)
    _refuse_added(near, tokenizer.piece_ids)
    if lower_case is not None or (tokenizer.knows_case and "do_lower_case" not in near.settings):
        return tokenizer
    said = near.said("do_lower_case")
    lower = not is_cased(tokenizer) if said is None else said
    _warn_of_case(near, lower, tokenizer)
    if lower == tokenizer.lower_case:
        return tokenizer
    return SentencePieceTokenizer(vocabulary, lower, path, keep_accents)


def _unigram(near: FolderFiles, lower_case: bool | None, keep_accents: bool | None, path: Path) -> Tokenizer:
    from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
    from tfrecords.tokenizers.unigram_file import as_model

    near.check("sentencepiece")
    splits = _check_unigram(near)
    values, steps = near.described, near.steps("normalizer")
    lower = near.said("do_lower_case") if lower_case is None else lower_case
    if keep_accents is None and near.strips_accents() != ("StripAccents" in [step["type"] for step in steps]):
        keep_accents = not near.strips_accents()
    special = {token["content"] for token in values.get("added_tokens") or [] if token.get("special")}
    model = as_model(values["model"], steps, splits, special, lower, keep_accents)
    _refuse_added(near, _ids_in(near))
    return SentencePieceTokenizer(model, path=path)


def _check_unigram(near: FolderFiles) -> bool:
    from tfrecords.tokenizers.unigram_file import is_step_of_blanks, is_step_of_quotes

    steps = near.steps("normalizer")
    inner = [step for step in steps if step["type"] != "Replace"]
    quotes = [step for step in steps if is_step_of_quotes(step)]
    blanks = [step for step in steps if is_step_of_blanks(step)]
    types = [step["type"] for step in steps]
    if [*quotes, *inner, *blanks] != steps or len(blanks) > 1 or types.count("Precompiled") > 1:
        other_files.refuse(near.where, f"has the steps {', '.join(types)} of normalization in this order")
    pre = [step["type"] for step in near.steps("pre_tokenizer")]
    if pre not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        other_files.refuse(near.where, f"has the pre_tokenizer {', '.join(pre) or 'none'}")
    ends, pair = framing(near.steps("post_processor"), _ids_in(near), near.where, True)
    if pair not in ({}, usual_pair(ends.get("cls", near.roles().get("cls")))):
        other_files.refuse(near.where, f"frames pairs with {pair['separators_between']} separators (post_processor)")
    if near.fairseq and (others := [step for step in types if step not in ("Precompiled", "Replace", "Strip")]):
        logging.warning(
            "'%s': the normalizer %s is followed, as in transformers 4; version 5 passes it over",
            *(near.where, ", ".join(others)),
        )
    # transformers 5 builds fairseq's classes with this step whatever the file says.
    return near.choose("pre_tokenizer WhitespaceSplit", len(pre) > 1, True) or bool(near.fairseq)


def _check_same_pieces(near: FolderFiles, pieces: list[str], ids: dict[str, int], path: Path) -> None:
    for piece, number in ids.items():
        if number >= len(pieces) or pieces[number] != piece:
            other_files.refuse(near.where, f"has the piece {piece!r} as {number}, not so '{path.name}'")


def _ids_in(near: FolderFiles) -> dict[str, int]:
    return {piece: number for number, (piece, _) in enumerate(near.described["model"]["vocab"])}


def _refuse_added(near: FolderFiles, ids: dict[str, int]) -> None:
    own = other_files.CONTROL_TOKENS | set(near.roles().values())
    added = [token.content for token in near.added_tokens(ids) if token.content not in own]
    if added:
        other_files.refuse(near.folder, f"adds the tokens {', '.join(added[:3])} to a Unigram vocabulary")
