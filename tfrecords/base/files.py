"""Files that are either whole or not there, and folders met at the door."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrecords.base.errors import UserError


@contextlib.contextmanager
def replacing(path: str | os.PathLike, durable: bool = True) -> Iterator[Path]:
    """Yields a temporary name beside `path`; renames it to `path` on success, removes it on any exception.

    After a power cut `path` is the old file or the new one, whole, unless `durable` is off. The temporary name keeps
    the suffix of `path`, since some writers choose the format by it.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
        if durable:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: str | os.PathLike) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# As `replacing` calls them, and Keras where it writes a model by way of the disk (with a digit in 92 of 100 names; a
# name without one may be somebody's).
_UNFINISHED = re.compile(r"\..+\.(?P<pid>\d+)\.partial(\.\w+)?|tmp(?=.*\d)[a-z0-9_]{8}")


def remove_unfinished(folder: str | os.PathLike) -> None:
    """Removes what killed processes were writing into the folder; what a living one writes stays."""
    for path in Path(folder).iterdir():
        found = _UNFINISHED.fullmatch(path.name)
        if found and path.is_file() and not _is_other_process(found["pid"]):
            path.unlink(missing_ok=True)


def _is_other_process(pid: str | None) -> bool:
    return pid is not None and int(pid) != os.getpid() and Path(f"/proc/{pid}").exists()


# What flock says where a file system, often one over a network, has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class LockedError(UserError):
    """Another process is in a folder."""


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Raises LockedError while another process is inside, or waits for it and says so; a killed one is not inside.

    The lock leaves no file. On a file system without locks nobody is held back.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = f"another process is at work in '{folder}'"
            if not wait:
                raise LockedError(f"{said}; wait for it, or give another folder") from None
            print(f"{said}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def write_json(path: str | os.PathLike, value: Any, durable: bool = True) -> None:
    """Writes a value as indented JSON, as `replacing` writes files."""
    with replacing(path, durable) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike) -> Any:
    """Raises UserError when the file is missing or is not JSON; a byte-order mark before it is passed over."""
    try:
        content = Path(path).read_bytes()
        check_content(path, content)
        # Editors of Windows begin a file with a byte-order mark.
        return json.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"'{path}' is not JSON: {error}") from error


_POINTER = b"version https://git-lfs.github.com/spec/"


def check_content(path: str | os.PathLike, content: bytes) -> None:
    """Raises UserError where what a file begins with says that Git LFS left it out."""
    if content.startswith(_POINTER):
        raise UserError(f"'{path}' is a Git LFS pointer, not the file itself; run git lfs pull, or download it again")


def make_output_dir(path: str | os.PathLike) -> Path:
    """Creates the folder and proves that files can be written there, before any long work."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"cannot write to output folder '{path}': {error.strerror}; choose another") from error
    return path


@contextlib.contextmanager
def trial_folder(output_dir: str | os.PathLike, name: str) -> Iterator[Path]:
    """Yields a new folder in `output_dir`; then removes it, and what else was made for it and is empty.

    Raises:
        UserError: as `make_output_dir`, and where there is such a folder already, which then stays as it is.
    """
    path = Path(output_dir) / name
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        make_output_dir(output_dir)
        try:
            path.mkdir()
        except FileExistsError:
            raise UserError(f"'{path}' is there already; if no other process is at work in it, remove it") from None
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def sha256(path: str | os.PathLike) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# A name on the Hugging Face hub, such as "albert/albert-base-v2", which nothing here downloads from.
_HUB_NAME = re.compile(r"[\w-]+/[\w.-]+")


def download_hint(path: str | os.PathLike) -> str:
    """Says how to download what `path` looks like the name of; "" where it looks like none, or there is such a file."""
    if not _HUB_NAME.fullmatch(str(path)) or Path(path).exists():
        return ""
    name = Path(path).name
    return f"of the Hugging Face hub, download it first: hf download {path} --local-dir {name}, then give {name}"
