"""Locates tokenizers without loading them, so that commands reject a missing one at once."""

import os
from collections.abc import Sequence
from pathlib import Path

from tfrecords.base.errors import UserError
from tfrecords.base.hub import MODULES, Fetch, find, inner_folder, nothing_read
from tfrecords.tokenizers.folder_files import MODEL, tokenizer_files
from tfrecords.tokenizers.other_files import SENTENCE_FILES


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
