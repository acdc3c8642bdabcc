"""The playground page."""

import base64
import hashlib
from pathlib import Path

_FOLDER = Path(__file__).parent / "page"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE, _SCRIPT = _read("style.css"), _read("script.js")
# Placeholders of the style and the script in the page.
PLAYGROUND = _read("page.html").replace("{style}", _STYLE).replace("{script}", _SCRIPT).encode()
# A browser runs this style and this script alone, and holds the page to its own address.
POLICY = (
    f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
).encode()
