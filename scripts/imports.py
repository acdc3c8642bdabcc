"""Which file of this repository imports which, read from the sources without running them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("tfrecords", "albert_tf", "serving")
FOLDERS = (*ROOMS, "scripts", "benchmarks", "fuzz", "tests")


@dataclass(frozen=True)
class Import:
    """One name that a file takes from a module: `from module import name`, or `import module` (no name)."""

    module: str
    name: str
    line: int
    # False inside a function: it runs when that is called, and closes no circle.
    at_load: bool


@dataclass
class Source:
    """A Python file: its path from the root of the repository, its syntax tree, its imports."""

    path: str
    tree: ast.Module = field(repr=False)

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of the file, those under `if TYPE_CHECKING` left out: they never run."""
        return list(_imports(self.tree.body, at_load=True))


def _imports(body: list[ast.stmt], at_load: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.module or "", alias.name, node.lineno, at_load) for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.iter_child_nodes(node):
                statements = [child] if isinstance(child, ast.stmt) else getattr(child, "body", [])
                if isinstance(statements, list):
                    yield from _imports(statements, inside)


class Sources:
    """All Python files of the repository, and the file behind each import."""

    def __init__(self, root: Path = ROOT):
        paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
        self.files = {
            str(path.relative_to(root)): Source(str(path.relative_to(root)), ast.parse(path.read_text("utf-8")))
            for path in paths
        }

    def file_of(self, module: str) -> str | None:
        """The path of a dotted module name; None where it is not of this repository."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self.files), None)

    def origin(self, module: str, name: str) -> str | None:
        """The file that defines `name` of `module`: packages that only hand a name on are looked through."""
        path = self.file_of(f"{module}.{name}") or self.file_of(module)
        if path and path.endswith("/__init__.py"):
            # Those under `if TYPE_CHECKING` too: they say where a name is that `__getattr__` fetches.
            for node in ast.walk(self.files[path].tree):
                is_of_others = isinstance(node, ast.ImportFrom) and node.module not in (None, module)
                if is_of_others and name in [alias.name for alias in node.names]:
                    return self.origin(node.module, name)
        return path

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """Each file's imports from this repository: the modules as named, and the files that define what is taken."""
        return {path: self._targets(path) for path in self.files}

    def _targets(self, path: str) -> set[str]:
        pairs = [(i.module, i.name) for i in self.files[path].imports]
        named = {self.file_of(f"{module}.{name}") or self.file_of(module) for module, name in pairs}
        return {target for target in named | {self.origin(*pair) for pair in pairs} if target and target != path}

    def circle(self) -> list[str]:
        """Files that import one another in a ring when they are loaded; empty where there is none."""
        done: set[str] = set()

        def visit(path: str, way: list[str]) -> list[str]:
            if path in way:
                return [*way[way.index(path) :], path]
            if path not in done:
                for target in sorted(self._loaded(path)):
                    if ring := visit(target, [*way, path]):
                        return ring
                done.add(path)
            return []

        return next((ring for path in self.files if (ring := visit(path, []))), [])

    def _loaded(self, path: str) -> set[str]:
        taken = [i for i in self.files[path].imports if i.at_load]
        named = {self.file_of(f"{i.module}.{i.name}") or self.file_of(i.module) for i in taken}
        return {target for target in named if target}


def distances(edges: dict[str, set[str]], start: str) -> dict[str, int]:
    """Every file that `edges` lead to from `start`, itself too, with the fewest steps to it."""
    steps, level = {start: 0}, [start]
    while level:
        level = [target for path in level for target in sorted(edges.get(path, ())) if target not in steps]
        steps |= dict.fromkeys(level, max(steps.values()) + 1)
    return steps
