"""Finds files by globs, writes them atomically, locks folders, and checks paths before long work."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tfrecords.base.errors import UserError
from tfrecords.base.version import VERSION

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def replacing(path: str | os.PathLike, durable: bool = True) -> Iterator[Path]:
    """Yields a temporary path with the suffix of `path`; on success, its file replaces `path`.

    If `durable`, `path` is never half-written, even after a power cut.
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
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# As `replacing` calls them, and Keras where it writes a model by way of the disk (with a digit in 92 of 100 names; a
# name without one may be somebody's).
_UNFINISHED = re.compile(r"\..+\.(?P<pid>\d+)\.partial(\.\w+)?|tmp(?=.*\d)[a-z0-9_]{8}")


def remove_unfinished(folder: str | os.PathLike) -> None:
    """Removes temporary files that dead processes left in a folder."""
    for path in Path(folder).iterdir():
        found = _UNFINISHED.fullmatch(path.name)
        pid = found and found["pid"]
        lives = pid is not None and int(pid) != os.getpid() and Path(f"/proc/{pid}").exists()
        if found and path.is_file() and not lives:
            path.unlink(missing_ok=True)


# Errors of flock on file systems without locks, often over a network.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Locks a folder; if another process holds the lock, raises UserError, or waits if `wait`.

    Has no effect on Windows, and on file systems without locks.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = f"another process is at work in '{folder}'"
            if not wait:
                raise UserError(f"{said}; wait for it, or give another folder") from None
            print(f"{said}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def write(path: str | os.PathLike, content: str | bytes, durable: bool = True) -> None:
    """Writes a file atomically, text as UTF-8."""
    with replacing(path, durable) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: str | os.PathLike, value: Any, durable: bool = True) -> None:
    """Writes an indented JSON file atomically."""
    write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", durable)


# Of vocabularies, settings and descriptions; the largest vocabulary that is read here has 17 MB. Parsed, JSON of this
# size takes up to 1.5 GB.
MAX_BYTES = 2**26


def read_limited(path: str | os.PathLike, most: int = MAX_BYTES) -> bytes:
    """Reads a regular file of at most `most` bytes.

    Raises OSError if it is unreadable, UserError if it is larger, not a regular file, or a Git LFS pointer.
    """
    # To open a pipe without a writer would wait for ever; Windows has none in folders.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UserError(f"'{path}' is no regular file; give a file")
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise UserError(f"'{path}' has {max(size, len(content)):,} bytes; such a file has at most {most:,}")
    check_content(path, content)
    return content


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file; raises UserError if it is missing, larger than MAX_BYTES, or not JSON."""
    try:
        return parse_json(read_limited(path), path)
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error


def parse_json(content: bytes, path: str | os.PathLike) -> Any:
    """Parses the content of the file `path`; raises UserError if it is not JSON."""
    try:
        # Editors of Windows begin a file with a byte-order mark.
        return json.loads(content.decode("utf-8-sig"))
    except RecursionError:
        raise UserError(f"'{path}' is not JSON: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"'{path}' is not JSON: {error}") from error


# What no name of a file has: JSON's escapes give halves of characters, too.
_NO_NAME = re.compile("[\0\ud800-\udfff]")


def inside(folder: Path, name: Any, listed_by: str | os.PathLike) -> Path:
    """Returns `folder`/`name`; raises UserError if that is outside. listed_by: file that contains the name."""
    if not isinstance(name, str) or _NO_NAME.search(name) or name.startswith("/") or ".." in name.split("/"):
        raise UserError(f"'{listed_by}' names {name!r}, which is no place in its folder; copy or download it again")
    return folder / name


def read_object(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a JSON object, or returns {} for a missing file; raises UserError for other content."""
    values = read_json(path) if Path(path).is_file() else {}
    if not isinstance(values, dict):
        raise UserError(f"'{path}' holds no JSON object; copy it again, or remove it")
    return values


def check_format(what: str, values: dict[str, Any], expected: int) -> None:
    """Raises UserError unless the "format_version" of `values`, 1 if missing, is `expected`."""
    found = values.get("format_version", 1)
    if found != expected:
        raise UserError(
            f"{what} has format_version {found}; albert-tf {VERSION} reads {expected}: use the version that wrote it, "
            "or make it anew"
        )


_POINTER = b"version https://git-lfs.github.com/spec/"


def check_content(path: str | os.PathLike, content: bytes) -> None:
    """Raises UserError if `content` is a Git LFS pointer."""
    if content.startswith(_POINTER):
        raise UserError(f"'{path}' is a Git LFS pointer, not the file itself; run git lfs pull, or download it again")


def folder_path(path: str | os.PathLike) -> Path:
    """Converts to a Path; raises UserError for "" or another type."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UserError(f"{path!r} is no path; name a folder")
    return Path(path)


def whole_path(name: str) -> str:
    """Returns the absolute path of an existing file; returns other names unchanged."""
    return str(Path(name).resolve()) if name and Path(name).exists() else name


def make_output_dir(path: str | os.PathLike) -> Path:
    """Creates the folder; raises UserError if it is not writable."""
    path = folder_path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"cannot write to output folder '{path}': {error.strerror}; choose another") from error
    return path


@contextlib.contextmanager
def output_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Creates and yields a folder; at the end removes created folders that are still empty."""
    path = folder_path(path)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield make_output_dir(path)
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def trial_folder(output_dir: str | os.PathLike, name: str) -> Iterator[Path]:
    """Creates and yields a folder, then removes it; raises UserError if it exists."""
    with output_folder(output_dir) as folder:
        path = folder / name
        try:
            path.mkdir()
        except FileExistsError:
            raise UserError(f"'{path}' is there already; if no other process is at work in it, remove it") from None
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def sha256(path: str | os.PathLike) -> str:
    """Returns a file's SHA-256 in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def patterns_of(patterns: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """Splits comma-separated globs; the name of a file or folder that is there stays whole."""
    if not isinstance(patterns, (str, os.PathLike)):
        return [str(pattern) for pattern in patterns]
    whole = str(patterns)
    parts = [whole] if os.path.lexists(os.path.expanduser(whole)) else whole.split(",")
    return [part.strip() for part in parts if part.strip()]


def matches(pattern: str) -> list[str]:
    """Returns the files and folders of a glob; what is there by that very name is no glob.

    Raises UserError for a name that is not UTF-8.
    """
    pattern = os.path.expanduser(pattern)
    folder = pattern
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    found = glob.glob(glob.escape(folder) + pattern[len(folder) :], recursive=True)
    for name in found:
        if not name.isascii() and name != name.encode(errors="replace").decode():
            raise UserError(f"the name of the file {name!a} is not UTF-8; rename it")
    return found
