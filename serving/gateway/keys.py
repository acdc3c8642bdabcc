"""API keys, compared in constant time."""

import base64
import hashlib
import hmac
import logging
import time
from collections.abc import Iterable

from tfrecords.base.errors import UserError
from tfrecords.base.files import read_limited

_LOG = logging.getLogger(__name__)
_SECONDS = 1.0


class Keys:
    """The accepted API keys. Those of a file are read again as requests come, at most once a second.

    >>> keys = Keys(["secret", "another"])
    >>> keys.open_to("Bearer another"), keys.open_to("Bearer wrong"), keys.open_to("")
    (True, False, False)
    """

    def __init__(self, keys: Iterable[str], path: str = ""):
        self._digests = [_digest(key) for key in keys]
        self._path, self._read_at, self._failure = path, time.monotonic(), ""

    @classmethod
    def read(cls, path: str) -> "Keys":
        """Reads a file of one key per line; # begins a comment line."""
        try:
            # Editors of Windows begin a file with a byte-order mark.
            lines = [line.strip() for line in read_limited(path).decode("utf-8-sig").splitlines()]
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read --api_key_file={path}: {error}") from error
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UserError(f"--api_key_file={path} holds no key; write one a line")
        return cls(keys, path)

    def _refresh(self) -> None:
        if not self._path or time.monotonic() < self._read_at + _SECONDS:
            return
        before, self._failure, self._read_at = self._failure, "", time.monotonic()
        try:
            self._digests = Keys.read(self._path)._digests
        except UserError as error:
            # Without a file that says who may ask, nobody may.
            self._digests, self._failure = [], str(error)
            if self._failure != before:
                _LOG.error("no key is accepted: %s", error)

    def open_to(self, authorization: str) -> bool:
        """Returns whether an Authorization header has a key: as Bearer, or as the password of Basic."""
        self._refresh()
        scheme, _, value = authorization.partition(" ")
        has_scheme = scheme.lower() in ("bearer", "basic")
        digest = _digest(_password(value) if scheme.lower() == "basic" else value.strip())
        found = False
        # Every key is compared, so that the time does not reveal which one matched.
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        return found and has_scheme


def _password(basic: str) -> str:
    try:
        return base64.b64decode(basic, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _digest(key: str) -> bytes:
    # Digests have one length; compare_digest tells that of its arguments.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
