"""Prints the test files that a change needs, for `scripts/test.sh --changed` (near) and `--affected` (near and far).

Near a changed file are the test files of its name (`test_corpus.py`, `test_corpus_*.py` for `corpus.py`), or where
there is none, of the names of the nearest files that import it; and those that name it in a string
(`"albert_tf.run_pretraining"`, `"requirements.txt"`). Far are all others that lead to it.
"""

import ast
import subprocess
import sys
from pathlib import Path, PurePosixPath

from scripts.imports import ROOT, Sources, distances

# Quick, and about every file.
ALWAYS = "tests/test_house.py"


def changed_files(base: str = "HEAD", root: Path = ROOT) -> list[str]:
    """Paths that differ from the commit `base`, or that git does not know yet."""
    commands = (
        ["git", "diff", "--name-only", "--relative", base, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    outputs = (subprocess.run(c, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout for c in commands)
    return sorted({path for output in outputs for path in output.splitlines()})


def near_and_far(path: str, sources: Sources) -> tuple[set[str], set[str]]:
    """Returns the test files near the file `path`, and those far from it; neither where nothing leads to it."""
    steps = distances(sources.importers, path)
    if _name(path) == "conftest.py":
        steps = {test: 1 for test in sources.files if test.startswith(path.removesuffix("conftest.py"))}
    tests = {file for file in sources.files if file.startswith("tests/") and _name(file).startswith("test_")}
    near = {test for test in tests if _mentions(sources.files[test].tree, path)}
    for level in range(max(steps.values()) + 1):
        files = [file for file, n in steps.items() if n == level]
        if named := {test for test in tests if test in files or any(_has_the_name(test, file) for file in files)}:
            near |= named
            break
    return near, tests.intersection(steps) - near


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _has_the_name(test: str, path: str) -> bool:
    source = PurePosixPath(path)
    stem = source.parent.name if source.name in ("__init__.py", "__main__.py") else source.stem
    return test.split("/")[1] == source.parts[0] and _name(test).startswith((f"test_{stem}.py", f"test_{stem}_"))


def _mentions(tree: ast.Module, path: str) -> bool:
    module = path.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    if path.endswith("__init__.py"):
        return False
    sought = module if path.endswith(".py") else _name(path)
    return any(isinstance(n, ast.Constant) and isinstance(n.value, str) and sought in n.value for n in ast.walk(tree))


def main(flag: str) -> None:
    """Prints the test files that `--changed[=COMMIT]` or `--affected[=COMMIT]` asks for, and on stderr their number."""
    kind, _, base = flag.partition("=")
    sources, near, far = Sources(), {ALWAYS}, set()
    changed = changed_files(base or "HEAD")
    for path in changed:
        of_this = near_and_far(path, sources)
        near, far = near | of_this[0], far | of_this[1]
    needed = near | far if kind == "--affected" else near
    left_out = f"; --affected adds {len(far - near)} that lead to the change" if far - needed else ""
    print(f"{len(changed)} changed files, {len(needed)} test files{left_out}", file=sys.stderr)
    print("\n".join(sorted(needed)))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except subprocess.CalledProcessError as error:
        # git has said what is wrong.
        sys.exit(error.returncode)
