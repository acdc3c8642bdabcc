"""tests/PROMISES.md: what the library promises, and the test that proves it."""

import ast
import re
from pathlib import Path

import pytest

from scripts.mutants import read_mutants

ROOT = Path(__file__).parents[1]
LINES = [line for line in (ROOT / "tests" / "PROMISES.md").read_text("utf-8").splitlines() if line.startswith("- ")]


def named(line: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", line)


def functions(path: Path) -> dict[str, bool]:
    """The tests of a file by `name` or `Class::name`, and whether all their cases are slow."""
    tree = ast.parse(path.read_text("utf-8"))
    whole = any(isinstance(n, ast.Assign) and n.targets[0].id == "pytestmark" and is_slow(n.value) for n in tree.body
                if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name))  # fmt: skip
    found = {}
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test_"):
                prefix = f"{node.name}::" if inner is not node else ""
                found[prefix + inner.name] = whole or any(map(is_slow, inner.decorator_list + node.decorator_list))
    return found


def is_slow(decorator: ast.expr) -> bool:
    """Whether a decorator marks all cases as slow; a mark of single cases stands inside of `parametrize`."""
    inside = decorator.elts if isinstance(decorator, ast.List) else [decorator]
    return any(re.match(r"pytest\.mark\.slow\b", ast.unparse(one)) for one in inside)


def test_every_promise_names_tests_of_the_default_suite_or_says_why_they_are_slow():
    files, wrong = {}, []
    for line in LINES:
        tests = [test.partition("::") for test in named(line)]
        for path in {path for path, _, _ in tests} - set(files):
            files[path] = functions(ROOT / path) if (ROOT / path).exists() else {}
        missing = [f"{path}::{name}" for path, _, name in tests if name not in files[path]]
        slow = tests and not missing and all(files[path][name] for path, _, name in tests)
        if not tests or missing or (slow and " slow: " not in line):
            wrong.append((line, missing))
    assert wrong == []
    assert len(set(LINES)) == len(LINES)


def test_the_page_on_security_names_tests_that_exist():
    text = (ROOT / "docs" / "explanation" / "security.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) > 20 and [row for row in rows if not named(row)] == []
    paths = [test.partition("::") for test in named(text)]
    assert [path + name for path, _, name in paths if name not in functions(ROOT / path)] == []
    assert len(text.split()) <= 800


def test_every_test_file_proves_a_promise():
    paths = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    assert paths - {test.partition("::")[0] for line in LINES for test in named(line)} == set()


def test_every_fault_of_the_table_can_be_planted(tmp_path):
    assert len(read_mutants()) >= 60
    entry = 'file = "README.md", old = "no such text", new = "x", promise = "p", tests = ["tests/test_promises.py"]'
    (tmp_path / "mutants.toml").write_text(f"mutant = [{{{entry}}}]")
    with pytest.raises(ValueError, match="holds 'no such text' 0 times"):
        read_mutants(tmp_path / "mutants.toml")
