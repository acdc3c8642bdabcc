"""Reads tokenizer settings from a folder's files by the rules of the program that wrote them.

transformers reads tokenizer_config.json for a class such as BertTokenizer, and tokenizer.json for one such as
PreTrainedTokenizerFast (transformers/tokenization_utils_tokenizers.py, `convert_to_native_format`).
"""

import fnmatch
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.hub import MODULES, Fetch, find, inner_folder, nothing_read
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.folders import other_files
from tfrecords.tokenizers.folders.other_files import SENTENCE_FILES, TokenizerClass, class_named

# The tokenizers library's file. Until 0.2 this library's description of a tokenizer had its name.
TOKENIZERS_FILE = "tokenizer.json"
_CONFIG, _MAP, _ADDED, MODEL = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"
# The files of published folders that a tokenizer is read from, and the vocabularies among them.
FILES = """tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.txt vocab.json
    merges.txt spiece.model 30k-clean.model sentencepiece.bpe.model albert_tokenizer.json preprocessor.json"""
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*spiece.model", "30k-clean.model", "*.bpe.model")
_OF_KERAS = "assets/tokenizer/*"
ROLES = {"cls": ("cls_token", "bos_token"), "sep": ("sep_token", "eos_token")} | {
    role: (f"{role}_token",) for role in ("pad", "unk", "mask")
}
# The same rule in tokenizer_config.json, as a key of BertNormalizer, and as a step of its own.
_RULES = {
    "do_lower_case": ("lowercase", "Lowercase"),
    "strip_accents": ("strip_accents", "StripAccents"),
    "tokenize_chinese_chars": ("handle_chinese_chars", ""),
    "clean_text": ("clean_text", ""),
}
# Defaults of transformers for missing keys.
_DEFAULTS = {"do_lower_case": True, "tokenize_chinese_chars": True, "clean_text": True}


class FolderFiles:
    """The tokenizer settings in a vocabulary's folder.

    described: a parsed tokenizer.json; by default the folder's. where: that file's name, for errors.

    Attributes:
        by_class: whether transformers reads tokenizer_config.json, not tokenizer.json.
        of_model: whether transformers infers a class that lower-cases from the model's type.
        fairseq: the pieces that fairseq puts before a SentencePiece model's own, or ().
        one_segment: whether transformers, in the version that wrote the files, gives second texts segment 0.
        is_of_library: whether transformers or the `tokenizers` library wrote any of the files.
    """

    def __init__(self, folder: Path, described: dict[str, Any] | None = None, where: str = ""):
        self.folder, self.where = folder, where or str(folder / TOKENIZERS_FILE)
        self._config, self._map, self._added, model, own = (
            files.read_object(folder / name) for name in (_CONFIG, _MAP, _ADDED, MODEL, TOKENIZERS_FILE)
        )
        self.settings = self._config | self._map
        self.described = (own if "model" in own else {}) if described is None else described
        self._of_keras = own if "class_name" in own else {}
        self.has_config = (folder / _CONFIG).is_file()
        self.is_of_library = bool(self.described) or any((folder / one).is_file() for one in (_CONFIG, _MAP, _ADDED))
        self._of_model = {"tokenizer_class": model.get("tokenizer_class")}
        named = self._config.get("tokenizer_class") or self._of_model["tokenizer_class"] or model.get("model_type")
        of_class = self._class = class_named(str(named or "")) or TokenizerClass()
        self._kind = other_files.kind_of(self.described) if self.described else ""
        self.is_of_library |= bool(of_class.roles)
        types = [step["type"] for step in self.steps("normalizer")]
        self.lowers_first = self._kind == "WordPiece" and types[:1] == ["Lowercase"]
        has_own_steps = bool(of_class.own_steps) and of_class.own_steps == self._kind
        self.by_class = self.has_config and (has_own_steps or not self.described)
        self._is_rebuilt = has_own_steps and not self.has_config
        self.of_model = not self.has_config and bool(of_class.own_steps) and not of_class.keeps_case
        self.fairseq, self.pair = of_class.fairseq, of_class.pair
        # Version 5 writes this key.
        names, version = self.settings.get("model_input_names"), 5 if "backend" in self.settings else 4
        self.one_segment = "token_type_ids" not in names if isinstance(names, list) else of_class.segments < version

    def check(self, kind: str) -> None:
        """Raises UnknownTokenizer for an unsupported step or key; see `other_files`."""
        for name, values in ((_CONFIG, self._config), (_MAP, self._map), (MODEL, self._of_model)):
            other_files.check_config(values, kind, str(self.folder / name))
        for part, key in (("truncation", "truncation_side"), ("padding", "padding_side")):
            side = str((self.described.get(part) or {}).get("direction", "right")).lower()
            if self.settings.get(key) is None and not other_files.CONFIG[key].lets_pass(side, kind):
                other_files.refuse(self.where, f"says {part} on the {side}")
        if self.described:
            other_files.check_file(self.described, self.where)
            if self._class.own_steps not in ("", self._kind):
                logging.warning(
                    "'%s' holds a %s tokenizer, not its class's; it is followed, as in transformers 4, not 5",
                    self.where,
                    self._kind,
                )
            frames = [step for step in self.steps("post_processor") if step["type"] in other_files.FRAMES]
            if not frames and not self.by_class:
                logging.warning("'%s': no post_processor frames rows; they get [CLS] and [SEP] here", self.where)

    def steps(self, part: str) -> list[dict[str, Any]]:
        return other_files.steps_of(self.described, part) if self.described else []

    def said(self, key: str) -> bool | None:
        """Returns the files' value of a rule such as "do_lower_case", or None; warns if files disagree."""
        of_bert, step_type = _RULES[key]
        steps = self.steps("normalizer")
        last = steps[-1] if steps else {}
        inside = last.get(of_bert) if "lowercase" in last else step_type in [step["type"] for step in steps]
        keras = self._of_keras.get("config", {}).get(of_bert) if key == "do_lower_case" else None
        found = self.choose(key, inside if self.described else None, self.default(key))
        return keras if found is None and isinstance(keras, bool) else found

    def default(self, key: str) -> bool | None:
        of_class = {"do_lower_case": False} if self._class.keeps_case or self.fairseq else {}
        of_class |= {"strip_accents": not self.fairseq} if self._kind == "Unigram" else {}
        return (_DEFAULTS | of_class).get(key)

    def choose(self, key: str, inside: Any, default: Any) -> Any:
        """Returns the value that transformers uses: tokenizer_config.json's, or tokenizer.json's (`inside`).

        Warns if they differ.
        """
        stated = self.settings.get(key)
        stated = stated if isinstance(stated, bool) else None
        if not self.by_class:
            found = inside if self.described else stated
        else:
            found = default if stated is None else stated
        if self._is_rebuilt and found not in (None, default):
            logging.warning(
                "%s is %s by '%s', which is followed; without %s, transformers takes %s of the model's type",
                *(key, found, self.where, _CONFIG, default),
            )
        if (self.described and inside != found) or stated not in (None, found):
            logging.warning(
                "%s is %s by '%s' and %s by %s; transformers takes %s, and so it is done here",
                *(key, inside, self.where, "not stated" if stated is None else stated, _CONFIG, found),
            )
        return found

    def strips_accents(self) -> bool | None:
        """Whether accents are dropped; None if that depends on `lower_case`."""
        # transformers 5 passes this key of XLNet's class over, and older ones read tokenizer.json. Fairseq's have none.
        passes_over = self.fairseq or (self._class.keeps_case and self.described)
        keeps = None if passes_over else self.settings.get("keep_accents")
        return not keeps if isinstance(keeps, bool) else self.said("strip_accents")

    def roles(self, others: bool = True) -> dict[str, str]:
        """Returns special tokens' strings by role; if `others`, bos may serve as cls and eos as sep."""
        found = {role: [self.settings.get(one) for one in names[: 1 + others]] for role, names in ROLES.items()}
        named = {role: _content(next(filter(None, tokens))) for role, tokens in found.items() if any(tokens)}
        return self._class.roles | named

    def takes_blank(self, name: str) -> bool | None:
        """Returns whether the mask token `name` takes in blanks before it (lstrip), or None if no file says so.

        As in transformers, added tokens have priority, those of tokenizer_config.json first.
        """
        tokens = [*(self.settings.get("added_tokens_decoder") or {}).values()]
        tokens += [*(self.described.get("added_tokens") or []), self.settings.get("mask_token")]
        return next((one.get("lstrip") for one in tokens if isinstance(one, dict) and one.get("content") == name), None)

    def added_tokens(self, ids: dict[str, int]) -> list[AddedToken]:
        """Returns the tokens that the files add to the vocabulary `ids`, by ascending id."""
        listed = self.described.get("added_tokens") or []
        tokens = {token["content"]: added_token(token, token["id"]) for token in listed}
        for number, token in (self.settings.get("added_tokens_decoder") or {}).items():
            tokens.setdefault(token["content"], added_token(token, int(number)))
        named = [self.settings[key] for key in other_files.ROLE_KEYS if self.settings.get(key)]
        for key in other_files.MORE_TOKENS_KEYS:
            more = self.settings.get(key) or []
            named += more.values() if isinstance(more, dict) else more
        special = {_content(token): token for token in named}
        for content, number in self._added.items():
            tokens.setdefault(content, AddedToken(content, int(number), content in special))
        for content, token in special.items():
            if content not in tokens:
                number = ids.get(content, max([*ids.values(), *(one.id for one in tokens.values())]) + 1)
                flags = token if isinstance(token, dict) else {}
                tokens[content] = added_token({"content": content, "special": True} | flags, number)
        return sorted(tokens.values(), key=lambda token: token.id)


def added_token(token: dict[str, Any], number: int) -> AddedToken:
    """Reads an added token; raises UnknownTokenizer if it matches whole words only."""
    if token.get("single_word"):
        other_files.refuse(TOKENIZERS_FILE, f"adds {token['content']!r} as a word of its own (single_word)")
    if type(number) is not int or number < 0:
        raise UserError(f"'{TOKENIZERS_FILE}' adds {token['content']!r} as {number!r}, which is no id; copy it again")
    flags = (bool(token.get(key)) for key in ("special", "lstrip", "rstrip"))
    return AddedToken(token["content"], number, *flags, normalized=token.get("normalized"))


def _content(token: str | dict[str, Any]) -> str:
    return token["content"] if isinstance(token, dict) else token


def tokenizer_files(names: Iterable[str]) -> list[str]:
    """Chooses a tokenizer's files among the names in a published folder."""
    names = list(names)
    found = [name for name in names if _matches(name, (*FILES.split(), _OF_KERAS))]
    if not any(_matches(name, (*_VOCABULARIES, _OF_KERAS)) for name in found):
        found += [name for name in names if "/" not in name and _matches(name, ("*.model", "*vocab*.txt"))]
    return found


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def folder_rules(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Returns which of `tfrecords.tokenizers.base.FOLDER_RULES` hold for a folder's tokenizer."""
    found = (folder / name for name in other_files.SENTENCE_FILES if (folder / name).is_file())
    near = FolderFiles(folder)
    says_so = files.read_object(next(found, folder)).get("do_lower_case")
    lowers_first = (says_so or (near.lowers_first and not near.by_class)) and not tokenizer.lower_case
    # The library matches added tokens before it lower-cases, which would hide them here.
    tokens = [one.content for one in tokenizer.cut_tokens if one.content.swapcase() != one.content]
    if lowers_first and tokens:
        other_files.refuse(folder, f"says do_lower_case and adds {tokens[0]!r}")
    mask = tokenizer.id_to_piece(tokenizer.mask_id)
    takes_blank = near.takes_blank(mask) if tokenizer.kind == "bpe" else True
    if takes_blank is None and (folder / "merges.txt").is_file():
        logging.warning(
            "'%s' does not say whether %s takes in the blank before it (lstrip); it does here and in transformers 4,"
            " in version 5 it does not",
            folder,
            mask,
        )
    rules = {
        "lowers_first": lowers_first,
        "odd_to_longer": near.is_of_library,
        "one_segment": tokenizer.second_segment_id and near.one_segment,
        "mask_keeps_blank": takes_blank is False,
    }
    return [name for name, holds in rules.items() if holds]


def read_file(path: Path) -> bytes:
    """Reads a file; raises UserError if it is unreadable, too large or a Git LFS pointer."""
    try:
        return files.read_limited(path)
    except OSError as error:
        raise UserError(f"cannot read tokenizer '{path}': {error.strerror}") from error


def check_tokenizer(path: str | os.PathLike) -> Path:
    """Returns a tokenizer's path, after downloading one from the hub; raises UserError if there is none."""
    found = find(path, _needed)
    if not found.exists():
        raise UserError(
            f"tokenizer '{path}' does not exist; give a .model, a vocab .txt, a BPE's .json, a folder with one of them,"
            " or the whole name of a model of the Hugging Face hub, such as albert/albert-base-v2"
        )
    return found / inner_folder(os.listdir(found), found.joinpath) if found.is_dir() else found


def _needed(name: str, listed: Sequence[str], fetch: Fetch) -> list[str]:
    inside = inner_folder(listed, fetch)
    here = [file.removeprefix(inside) for file in listed if file.startswith(inside)]
    if not (wanted := tokenizer_files(here)):
        raise nothing_read(name, listed, "tokenizer that is")
    wanted += [file for file in here if file == MODEL or file in SENTENCE_FILES]
    return [*(file for file in (MODULES,) if file in listed), *(f"{inside}{file}" for file in wanted)]
