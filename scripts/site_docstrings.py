"""Has the site show the examples of docstrings (`>>>`) as code: an extension of griffe (mkdocs.yml)."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?m)^( *)>>> .*\n?(?:\1.+\n?)*")


class Examples(griffe.Extension):
    """Fences each example, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(found: re.Match) -> str:
    return f"{found[1]}```pycon\n{found[0].rstrip()}\n{found[1]}```\n"
