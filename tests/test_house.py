"""The rules of BUILD.md ("Rules of the house"): who may import whom, and what everything public says of itself."""

import ast
import doctest
import importlib
import importlib.metadata
import re
import sys
import tomllib

import pytest

from scripts.imports import ROOMS, ROOT, Sources, distances
from serving.commands import CLIENT_COMMANDS, COMMANDS
from tests.stand_in import StandIn

# The serving kit is for any model: it knows nothing of ALBERT.
KIT = ("wire", "client", "model_server", "benchmark", "gateway", "score", "http_protocol")


@pytest.fixture(scope="module")
def sources():
    return Sources(ROOT)


def room(path):
    return path.split("/")[0]


# `Loaded.export` hands its model on to the room above, inside of the method: whoever calls it wants that room.
ALLOWED_UPWARD = {"albert_tf/loaded.py imports serving/exporting.py"}


def test_no_room_imports_upward(sources):
    """tfrecords < albert_tf < serving; and no room imports scripts, benchmarks or tests."""
    upward = {
        f"{path} imports {target}"
        for path, targets in sources.graph.items()
        for target in sorted(targets)
        if room(path) in ROOMS and room(target) not in ROOMS[: ROOMS.index(room(path)) + 1]
    }
    assert upward == ALLOWED_UPWARD
    at_load = [taken for taken in sources.files["albert_tf/loaded.py"].imports if taken.at_load]
    assert not [taken for taken in at_load if taken.module.startswith("serving")]


def test_the_hub_is_imported_when_a_name_is_given(sources):
    importers = [
        path
        for path, source in sources.files.items()
        if room(path) in ROOMS and any(taken.module == "huggingface_hub" and taken.at_load for taken in source.imports)
    ]
    assert importers == []


@pytest.mark.parametrize("folder, may", [("tfrecords/base/", ()), ("albert_tf/base/", ("tfrecords/base/",))])
def test_base_imports_nothing_of_the_rooms(folder, may, sources):
    base = [path for path in sources.files if path.startswith(folder)]
    assert base
    outside = {target for path in base for target in sources.graph[path] if not target.startswith((folder, *may))}
    assert outside == set()


def test_the_serving_kit_knows_nothing_of_albert(sources):
    kit = [path for path in sources.files if path.startswith(tuple(f"serving/{name}" for name in KIT))]
    assert len(kit) > 50
    reached = {
        (path, target) for path in kit for target in distances(sources.graph, path) if room(target) == "albert_tf"
    }
    assert reached == set()


# Modules of packages that a declared one requires.
COME_WITH = {"h5py": "keras", "flatbuffers": "ai-edge-litert", "ml_dtypes": "keras"}


def test_what_is_imported_at_load_is_declared(sources):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = [*project["project"]["dependencies"]]
    extras = project["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    for name in extras.keys() - {"test", "docs", "fuzz", "folders"}:
        lines += [line for file in extras[name]["file"] for line in (ROOT / file).read_text().splitlines()]
    declared = {package_of(line) for line in lines if re.match(r"\w", line)}
    packages = importlib.metadata.packages_distributions()
    modules = {
        taken.module.split(".")[0]
        for path, source in sources.files.items()
        for taken in source.imports
        if room(path) in ROOMS and taken.at_load
    } - {*ROOMS, *sys.stdlib_module_names}
    undeclared = {name for name in modules if not declared & {package_of(one) for one in packages.get(name, [name])}}
    assert undeclared == set(COME_WITH)
    for name, giver in COME_WITH.items():
        assert package_of(name) in {package_of(line) for line in importlib.metadata.requires(giver)}


def package_of(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def test_nothing_imports_itself_in_a_ring(sources):
    assert sources.circle() == []


def test_no_private_name_crosses_a_file(sources):
    outside_tests = {path: source for path, source in sources.files.items() if room(path) != "tests"}
    private = [
        f"{path}:{taken.line} imports {taken.name} of {taken.module}"
        for path, source in outside_tests.items()
        for taken in source.imports
        if sources.file_of(taken.module) and taken.name.startswith("_") and not taken.name.startswith("__")
    ]
    private += [
        f"{path}:{node.lineno} takes {ast.unparse(node)}"
        for path, source in outside_tests.items()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and isinstance(node.value, ast.Name)
        and node.value.id in _modules(source, sources)
    ]
    assert private == []


def _modules(source, sources):
    """The local names of modules of this repository that a file imports whole."""
    nodes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {
        alias.asname or alias.name
        for node in nodes
        for alias in node.names
        if sources.file_of(f"{node.module}.{alias.name}")
    }


EXAMPLES = [path for name in ROOMS for path in sorted((ROOT / name).rglob("*.py")) if ">>> " in path.read_text("utf-8")]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_in_docstrings_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    with StandIn() as server:
        given = {"target": server.target}
        results = doctest.testmod(importlib.import_module(name), optionflags=flags, extraglobs=given)
    assert results.attempted and not results.failed


def commands(sources, *folders):
    """The files that do something when they are run; not those that are another command's process, without a `run`."""
    guard = "__name__ == '__main__'"
    guarded = {
        path: [getattr(node, "name", "") for node in source.tree.body]
        for path, source in sources.files.items()
        if any(isinstance(node, ast.If) and ast.unparse(node.test) == guard for node in source.tree.body)
    }
    return {
        path for path, names in guarded.items() if room(path) in folders and ("run" in names or room(path) not in ROOMS)
    }


def test_every_command_has_a_name(sources):
    named = {module.replace(".", "/") for module, _ in (*COMMANDS.values(), *CLIENT_COMMANDS.values())}
    # The second is `albert-tf evaluate`, of an export.
    found = commands(sources, "tfrecords", "albert_tf", "serving") - {"serving/commands.py", "serving/evaluate.py"}
    assert {path.removesuffix(".py").removesuffix("/__main__") for path in found} == named


def test_the_map_in_architecture_is_that_of_the_tree(sources):
    lines = (ROOT / "ARCHITECTURE.md").read_text().split("## The map")[1].split("```")[1].strip("\n").splitlines()
    folders, paths = [], []
    for line in lines:
        names = re.match(r" *((?:\S+, )*\S+)", line)[1].split(", ")
        depth = (len(line) - len(line.lstrip())) // 2
        folders = [*folders[:depth], names[0]]
        paths += ["".join([*folders[:depth], name]) for name in names]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert {path for path in commands(sources, *ROOMS) if path.count("/") == 1} - set(paths) == set()
    assert {line.split("/")[0] for line in lines if not line.startswith(" ")} == set(ROOMS)
