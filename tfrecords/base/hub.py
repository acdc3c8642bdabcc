"""Names on the Hugging Face hub, which nothing here downloads from."""

import os
import re
from pathlib import Path

# "albert/albert-base-v2", as transformers would download it.
_NAME = re.compile(r"[\w-]+/[\w.-]+")


def download_hint(path: str | os.PathLike) -> str:
    """How to download what `path` looks like the name of; "" where it looks like none, or there is such a file."""
    if not _NAME.fullmatch(str(path)) or Path(path).exists():
        return ""
    name = Path(path).name
    return f"of the Hugging Face hub, download it first: hf download {path} --local-dir {name}, then give {name}"
