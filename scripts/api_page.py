"""Writes docs/api.md: the public names with the first sentence of their docstrings, read from the sources.

Run it when a docstring changes: `python -m scripts.api_page`. Whole docstrings as web pages: pdoc (BUILD.md).
"""

import ast
import re
import tomllib

from scripts.imports import ROOT, Sources

FACE = ("albert_tf", "albert_tf.checkpoints", "albert_tf.optimizers", "serving.client")
PAGE = ROOT / "docs" / "api.md"
_HEAD = """# API

What is public, with the first sentence of its docstring; `help(name)` shows the rest, with shapes, errors and
examples, and `python -m pdoc -d google -o site albert_tf serving.client` (`pip install '.[docs]'`) draws web pages.
Names that are not here may change. Written by `python -m scripts.api_page`, kept true by a test.
"""


def page() -> str:
    """Returns the text that docs/api.md should have."""
    sources = Sources()
    parts = [_HEAD]
    for package in FACE:
        names = _public_names(sources.files[sources.file_of(package)].tree)
        rows = [f"| `{name}` | {_first_sentence(sources, package, name)} |" for name in names]
        parts.append("\n".join([f"## {package}\n", "| name | |", "|---|---|", *rows, ""]))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    modules = {name: target.removesuffix(":run") for name, target in scripts.items()}
    rows = [
        f"| `{name}`, `python -m {module.removesuffix('.__main__')}` | {_first_line(_tree(sources, module))} |"
        for name, module in modules.items()
    ]
    parts.append("\n".join(["## Commands\n", "| name | |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _tree(sources: Sources, module: str) -> ast.Module:
    return sources.files[sources.file_of(module)].tree


def _public_names(tree: ast.Module) -> list[str]:
    lists = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
    return sorted(ast.literal_eval(lists[0]))


def _first_sentence(sources: Sources, package: str, name: str) -> str:
    for node in sources.files[sources.origin(package, name)].tree.body:
        if getattr(node, "name", "") == name:
            return _first_line(node)
    return "a constant"


def _first_line(node) -> str:
    paragraph = (ast.get_docstring(node) or "").split("\n\n")[0]
    return re.sub(r": `python -m \S+ --help`\.$", ".", " ".join(paragraph.split())).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
