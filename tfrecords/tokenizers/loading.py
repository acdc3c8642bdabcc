"""Loads this library's tokenizers, and those of published checkpoints."""

import os
from pathlib import Path

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import DESCRIPTION_FILE, DESCRIPTION_FORMAT, FOLDER_RULES, Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.folders.folder_files import (
    TOKENIZERS_FILE,
    FolderFiles,
    check_tokenizer,
    folder_rules,
    read_file,
)
from tfrecords.tokenizers.folders.published import from_merges, from_tokenizers, sentencepiece, wordpiece
from tfrecords.tokenizers.wordpiece import WordPieceRules, WordPieceTokenizer

# In order of precedence: a folder may hold copies under other names.
_VOCABULARIES = (
    "spiece.model",
    "30k-clean.model",
    "vocab.txt",
    "assets/tokenizer/vocabulary.spm",
    "assets/tokenizer/vocabulary.txt",
)
# Files of byte-level BPE next to merges.txt; a tokenizer.json has more settings.
_BPE_VOCABULARIES = ("vocab.json", "assets/tokenizer/vocabulary.json")


def load_tokenizer(
    path: str | os.PathLike, lower_case: bool | None = None, keep_accents: bool | None = None
) -> Tokenizer:
    """Loads a SentencePiece .model, WordPiece vocab .txt, BPE .json, a folder with one of these, or a model on the hub.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vocab.txt"
    >>> _ = path.write_text("[PAD] [UNK] [CLS] [SEP] [MASK] he ##llo there".replace(" ", chr(10)))
    >>> tokenizer = load_tokenizer(path)
    >>> tokenizer.encode("Hello there")
    [5, 6, 7]
    >>> tokenizer.decode([5, 6, 7])
    'hello there'

    Args:
        path: For byte-level BPE, a tokenizer.json, or a vocab.json next to merges.txt.
        lower_case: Whether text is lower-cased. None: as the files next to the vocabulary say, or else True unless it
            is cased.
        keep_accents: Whether accents stay. None: as the files say, or else False.

    Raises:
        UserError: there is no tokenizer or several, or it is damaged, unsupported or stored with other case or accents.
    """
    path = check_tokenizer(path)
    if path.is_dir():
        found = tokenizer_in(path, lower_case, keep_accents)
        if found is None:
            raise UserError(f"'{path}' holds no tokenizer; give the .model, vocab .txt or vocab.json itself")
        return found
    if path.name == DESCRIPTION_FILE:
        return _saved_in(path.parent, lower_case, keep_accents)
    return _read_file(path, lower_case, keep_accents)


# Scripts of users call it so.
read_tokenizer = load_tokenizer


def _saved_in(folder: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    described = folder / DESCRIPTION_FILE
    description = files.read_json(described)
    try:
        files.check_format(f"'{described}'", description, DESCRIPTION_FORMAT)
        path, kind = files.inside(folder, description["vocabulary"], described), description["kind"]
        vocabulary, rules = read_file(path), (description["lower_case"], path, description["keep_accents"])
        # Only the kind of tokenizer that is there is imported.
        if kind == "bpe":
            from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
            from tfrecords.tokenizers.bytes.library_bpe import LibraryBPETokenizer
            from tfrecords.tokenizers.folders.other_files import is_of_library

            made = LibraryBPETokenizer if is_of_library(files.parse_json(vocabulary, path)) else ByteBPETokenizer
            tokenizer: Tokenizer = made(vocabulary, path, description["special_tokens"])
        elif kind == "sentencepiece":
            from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer

            tokenizer = SentencePieceTokenizer(vocabulary, *rules)
        else:
            own = WordPieceRules.from_values(description.get("rules", {}))
            tokenizer = WordPieceTokenizer(vocabulary, *rules, own)
        expected = description["sha256"]
    except UnknownTokenizer as error:
        # Saved tokenizers are always supported.
        raise UserError(f"'{path}' is not the vocabulary that '{described}' describes; save it again") from error
    except UserError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise UserError(f"'{described}' is not a tokenizer's description; save it again") from error
    tokenizer = tokenizer.with_rules([name for name in FOLDER_RULES if description.get(name) is True])
    if tokenizer.sha256 != expected:
        raise UserError(f"'{path}' is not the vocabulary that '{described}' describes; save it again")
    for name, asked in (("lower_case", lower_case), ("keep_accents", keep_accents)):
        if asked not in (None, getattr(tokenizer, name)):
            raise UserError(
                f"the tokenizer in '{folder}' was saved with {name}={getattr(tokenizer, name)}; leave out --{name}"
            )
    return tokenizer


def tokenizer_in(
    folder: str | os.PathLike, lower_case: bool | None = None, keep_accents: bool | None = None
) -> Tokenizer | None:
    """Reads a folder's tokenizer like `load_tokenizer`, or returns None."""
    folder = Path(folder)
    if (folder / DESCRIPTION_FILE).is_file():
        return _saved_in(folder, lower_case, keep_accents)
    is_described = "model" in files.read_object(folder / TOKENIZERS_FILE)
    names = (*_VOCABULARIES, *[TOKENIZERS_FILE] * is_described, *_BPE_VOCABULARIES)
    found = [folder / name for name in names if (folder / name).is_file()][:1]
    found = found or sorted([*folder.glob("*.model"), *folder.glob("*vocab*.txt")])
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise UserError(f"of tokenizers '{folder}' holds {listed}; say which is meant by --tokenizer=...")
    return _read_file(found[0], lower_case, keep_accents, folder) if found else None


def own_sha256(folder: str | os.PathLike) -> str | None:
    """`Tokenizer.sha256` of the tokenizer that this library saved in a folder, or None."""
    return files.read_object(Path(folder) / DESCRIPTION_FILE).get("sha256")


def _read_file(path: Path, lower_case: bool | None, keep_accents: bool | None, folder: Path | None = None) -> Tokenizer:
    folder = folder or path.parent
    try:
        if path.suffix != ".json":
            make = wordpiece if path.suffix == ".txt" else sentencepiece
            tokenizer = make(read_file(path), FolderFiles(folder), lower_case, keep_accents, path)
        elif "model" in files.read_json(path):
            tokenizer = from_tokenizers(path, lower_case, keep_accents)
        else:
            tokenizer = from_merges(path, lower_case)
        return tokenizer.with_rules(folder_rules(folder, tokenizer))
    except UserError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise UserError(
            f"'{path}' or a file next to it is not as transformers and the `tokenizers` library write it; copy it again"
        ) from error
