"""Locked requirements and workflows: what is installed for a release is named by hash, and what runs by commit."""

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.audit import COMMANDS
from scripts.lock import LOCKED, NOT_LOCKED, ROOT, readable_files

PINNED_ACTION = re.compile(r"uses: [\w-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+")


def requirements(path):
    lines = (line.split(" \\")[0] for line in path.read_text("utf-8").splitlines())
    return [Requirement(line) for line in lines if line and line[0] not in "# "]


@pytest.mark.parametrize("path", readable_files(), ids=lambda path: path.stem)
def test_locked_and_readable_requirements_agree(path):
    readable, locked = (
        {canonicalize_name(one.name): str(one.specifier) for one in requirements(of)}
        for of in (path, LOCKED / path.name)
    )
    assert readable.items() <= locked.items()


def test_every_locked_package_has_hashes():
    for path in LOCKED.glob("*.txt"):
        blocks = re.split(r"\n(?=\w)", path.read_text("utf-8"))
        assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_one_version_of_each_package_over_all_locked_files():
    versions = {}
    for path in LOCKED.glob("*.txt"):
        for one in requirements(path):
            versions.setdefault((one.name, str(one.marker)), set()).add(str(one.specifier))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_every_file_of_requirements_is_locked_or_known_not_to_be():
    names = {path.stem for path in (ROOT / "requirements").glob("*.txt")}
    assert names - set(NOT_LOCKED) | {"requirements"} == {path.stem for path in LOCKED.glob("*.txt")}
    assert set(NOT_LOCKED) <= names


def test_actions_are_pinned_to_commits_and_the_audit_is_run():
    workflows = {path.name: path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    used = [line.strip().removeprefix("- ") for text in workflows.values() for line in text.splitlines()]
    used = [line for line in used if line.startswith("uses:")]
    assert used and [line for line in used if not PINNED_ACTION.fullmatch(line)] == []
    assert "python -m scripts.audit" in workflows["test.yml"]
    assert "pip install --require-hashes -r requirements/locked/release.txt" in workflows["release.yml"]
    assert {command[0] for command in COMMANDS} == {"bandit", "zizmor", "pip-audit"}
