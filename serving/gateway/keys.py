"""API keys, compared in constant time."""

import base64
import hashlib
import hmac
from collections.abc import Iterable

from tfrecords.base.errors import UserError
from tfrecords.base.files import read_limited


class Keys:
    """The accepted API keys.

    >>> keys = Keys(["secret", "another"])
    >>> keys.open_to("Bearer another"), keys.open_to("Bearer wrong"), keys.open_to("")
    (True, False, False)
    """

    def __init__(self, keys: Iterable[str]):
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: str) -> "Keys":
        """Reads a file of one key per line; # begins a comment line."""
        try:
            lines = [line.strip() for line in read_limited(path).decode().splitlines()]
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read --api_key_file={path}: {error}") from error
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UserError(f"--api_key_file={path} holds no key; write one a line")
        return cls(keys)

    def open_to(self, authorization: str) -> bool:
        """Returns whether an Authorization header has a key: as Bearer, or as the password of Basic."""
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
