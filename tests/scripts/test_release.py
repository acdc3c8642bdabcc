"""Locked requirements and workflows: what is installed for a release is named by hash, and what runs by commit."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
READABLE = {"requirements": ROOT / "requirements.txt", "release": ROOT / "requirements" / "release.txt"}
PINNED_ACTION = re.compile(r"uses: [\w-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+")


def versions(path):
    lines = (line.split(" \\")[0] for line in path.read_text("utf-8").splitlines())
    found = [Requirement(line) for line in lines if line and line[0] not in "# "]
    return {canonicalize_name(one.name): str(one.specifier) for one in found}


@pytest.mark.parametrize("name", READABLE)
def test_locked_requirements_have_the_readable_versions_and_hashes(name):
    locked = ROOT / "requirements" / "locked" / f"{name}.txt"
    assert versions(READABLE[name]).items() <= versions(locked).items()
    blocks = re.split(r"\n(?=\w)", locked.read_text("utf-8"))
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_actions_are_pinned_to_commits_and_packages_to_hashes():
    workflows = {path.name: path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    used = [line.strip().removeprefix("- ") for text in workflows.values() for line in text.splitlines()]
    used = [line for line in used if line.startswith("uses:")]
    assert used and [line for line in used if not PINNED_ACTION.fullmatch(line)] == []
    for name in ("test.yml", "release.yml"):
        assert "pip install --require-hashes -r requirements/locked/release.txt" in workflows[name]
        assert "pip-audit --strict --require-hashes" in workflows[name]
