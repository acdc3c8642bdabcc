"""Pages of the public names, with their arguments and whole docstrings, read from the sources."""

import ast

from scripts.reference import sources
from scripts.reference.markdown import docstring, table

FACE = ("albert_tf", "albert_tf.checkpoints", "albert_tf.optimizers", "serving.client")
_HEAD = """# Python API

All public names. `help(name)` shows the same text. Names that are not here may change.
"""


def pages() -> dict[str, str]:
    """Returns the pages of the public packages by their paths below docs/reference."""
    found, parts = {}, [_HEAD]
    for package in FACE:
        page = f"api/{package.replace('.', '_')}.md"
        names = public_names(package)
        texts = [f"# {package}", *(_described(package, name) for name in names)]
        found[page] = "\n\n".join(texts)
        rows = [[f"[`{name}`]({page}#{name.lower()})", _first_sentence(package, name)] for name in names]
        parts.append(f"## {package}\n\n{table(('name', ''), rows)}\n")
    return {"api.md": "\n".join(parts), **found}


def public_names(package: str) -> list[str]:
    """Returns the names in `__all__` of a package."""
    body = sources.tree(package).body
    lists = [one.value for one in body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__"]
    return sorted(ast.literal_eval(lists[0]))


def _definition(package: str, name: str) -> ast.stmt | None:
    return next((one for one in _beside(package, name) if getattr(one, "name", "") == name), None)


def _beside(package: str, name: str) -> list[ast.stmt]:
    """Returns all statements of the file that defines a name."""
    path = sources.all_sources().origin(package, name)
    return sources.all_sources().files[path].tree.body if path else []


def _first_sentence(package: str, name: str) -> str:
    node = _definition(package, name)
    return docstring(ast.get_docstring(node)).split("\n\n")[0] if isinstance(node, _DOCUMENTED) else "A constant."


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.ClassDef, *_FUNCTIONS)


def _described(package: str, name: str) -> str:
    node = _definition(package, name)
    if not isinstance(node, _DOCUMENTED):
        return f"## `{name}`\n\nA constant."
    base = _base(package, name, node)
    parts = [f"## {name}", _fenced(_signature(base or node, name)), docstring(ast.get_docstring(node))]
    if base is not None:
        text = docstring(ast.get_docstring(base))
        entries = text.partition("**Args**\n\n")[2].split("\n\n")[0]
        parts.append(f"**Args** of {base.name}, its base class\n\n{entries}")
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, _FUNCTIONS) and not method.name.startswith("_") and ast.get_docstring(method):
                said = _fenced(_signature(method, method.name))
                parts += [f"### {name}.{method.name}", said, docstring(ast.get_docstring(method))]
    return "\n\n".join(parts)


def _base(package: str, name: str, node: ast.stmt) -> ast.ClassDef | None:
    """Returns the base class that has the arguments of a class which hands all of its own on."""
    made = _made(node)
    if not isinstance(node, ast.ClassDef) or made is None or made.args.vararg is None:
        return None
    names = [ast.unparse(one) for one in node.bases]
    found = [one for one in _beside(package, name) if isinstance(one, ast.ClassDef) and one.name in names]
    return found[0] if found and _made(found[0]) else None


def _made(node: ast.stmt) -> ast.FunctionDef | None:
    body = node.body if isinstance(node, ast.ClassDef) else []
    return next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def _fenced(text: str) -> str:
    return f"```python\n{text}\n```"


def _signature(node: ast.stmt, name: str) -> str:
    """Returns the call of a function, or of a class by its __init__ or, of a dataclass, its fields."""
    if isinstance(node, _FUNCTIONS):
        decorators = {ast.unparse(one) for one in node.decorator_list}
        if {"property", "functools.cached_property"} & decorators:
            return name
        skipped = bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
        return _called(name, node, skipped)
    assert isinstance(node, ast.ClassDef)
    if (made := _made(node)) is not None:
        return _called(name, made, skip_first=True)
    fields = [
        one for one in node.body if isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_")
    ]
    return f"{name}({', '.join(map(ast.unparse, fields))})" if fields else name


def _called(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, skip_first: bool) -> str:
    given = node.args
    arguments = ast.arguments(
        posonlyargs=given.posonlyargs, args=given.args[skip_first:], vararg=given.vararg, kwonlyargs=given.kwonlyargs,
        kw_defaults=given.kw_defaults, kwarg=given.kwarg, defaults=given.defaults,
    )  # fmt: skip
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and name != "__init__" else ""
    text = ast.unparse(arguments)
    if len(text) > 80:
        text = "\n    " + ",\n    ".join(_split(text)) + ",\n"
    return f"{'async ' * isinstance(node, ast.AsyncFunctionDef)}{name}({text}){returned}"


def _split(text: str) -> list[str]:
    """Splits arguments at the commas between them, not at those within brackets."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()]
