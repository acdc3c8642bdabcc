"""Two versions are compared to the bit, and what differs is named."""

import shutil
import subprocess

import numpy as np
import pytest

from scripts import compare_versions
from scripts.compare_versions import Processes, Side, checked_out, compare_group
from scripts.version_cases.comparison import Allowance, compare, table
from scripts.version_cases.groups import GROUPS
from scripts.version_cases.results import load, save
from tests.conftest import ROOT

ONE = np.array([1.0, -2.0, np.nan, 0.0], "float32")
CHANGES = {
    "the last bit": (ONE, np.array([np.nextafter(np.float32(1), np.float32(2)), -2.0, np.nan, 0.0], "float32")),
    "the sign of zero": (ONE, np.array([1.0, -2.0, np.nan, -0.0], "float32")),
    "a type": (np.ones(2, "int32"), np.ones(2, "int64")),
    "a shape": (np.ones((1, 2)), np.ones((2, 1))),
    "a byte": (b"ab", b"ac"),
    "a letter": ("one\ntwo", "one\ntwos"),
    "a type of equal bits": (np.zeros(2, "float16"), np.zeros(2, "uint16")),
}


def results(path, values, case="a case"):
    save(path, {case: values})
    return load(path)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_and_its_neighbours_are_equal(change, tmp_path):
    equal = {"same": ONE, "text": "Grüße", "bytes": b"\x00", "number": 3, "strings": np.array([b"a", b"bc"], object)}
    ours, theirs = (results(tmp_path / f"{i}.npz", equal | {"x": value}) for i, value in enumerate(CHANGES[change]))
    (difference,) = compare("group", ours, theirs)
    assert (difference.case, difference.array, difference.allowed) == ("a case", "x", "")
    assert "group: a case" in table([difference])
    assert compare("group", ours, ours) == []


def test_how_much_differs_is_said_and_rounding_is_allowed_up_to_its_amount(tmp_path):
    ours, theirs = (results(tmp_path / f"{x}.npz", {"x": np.array([x, 2.0, 3.0], "float32")}) for x in (1.0, 1.25))
    (difference,) = compare("group", ours, theirs)
    assert (difference.largest, difference.count, difference.size) == (0.25, 1, 3)
    for amount, reason in ((0.25, "sums in another order"), (0.2, "")):
        rule = Allowance("group: a*", "x", amount, "sums in another order")
        assert [one.allowed for one in compare("group", ours, theirs, [rule])] == [reason]


def test_a_case_or_an_array_that_one_version_lacks_differs_and_so_does_a_failure_of_both(tmp_path):
    full = results(tmp_path / "full.npz", {"x": ONE, "y": ONE})
    part = results(tmp_path / "part.npz", {"x": ONE})
    other = results(tmp_path / "other.npz", {"x": ONE}, "another")
    failed = results(tmp_path / "failed.npz", {"failed": "ValueError: no"})
    assert [one.what for one in compare("g", full, part)] == ["only before"]
    assert [one.what for one in compare("g", part, full)] == ["only after"]
    assert [one.what for one in compare("g", part, other)] == ["only before", "only after"]
    assert [one.what for one in compare("g", failed, failed)] == ["before: ValueError: no; after: ValueError: no"]


def test_a_commit_lies_next_to_the_tree_until_it_is_compared(tmp_path):
    root = tmp_path / "tree"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    root.mkdir()
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    commit = compare_versions.full_commit("HEAD", root)
    with pytest.raises(KeyboardInterrupt), checked_out(commit, root) as folder:
        assert folder.parent == tmp_path and (folder / ".git").is_file()
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    listed = subprocess.run([*git, "worktree", "list"], cwd=root, check=True, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == 1


def test_one_word_of_a_help_text_is_found_by_the_command_itself(tmp_path):
    """Both versions run in processes of their own, from the same cases."""
    changed = tmp_path / "changed"
    shutil.copytree(ROOT / "tfrecords", changed / "tfrecords", ignore=shutil.ignore_patterns("__pycache__"))
    source = changed / "tfrecords" / "train_tokenizer.py"
    source.write_text(source.read_text().replace("Number of pieces.", "Number of parts."))
    cases, processes = tmp_path / "cases", Processes()
    shutil.copytree(compare_versions.CASES, cases / compare_versions.CASES.name)
    wanted = "^--help of tfrecords.train_tokenizer$"
    before = Side("before", ROOT, tmp_path / "before", cases, wanted, processes)
    found = []
    for tree in (ROOT, changed):
        after = Side("after", tree, tmp_path / "after", cases, wanted, processes)
        group, count, arrays, differences = compare_group("commands", before, after)
        assert (group, count, arrays) == ("commands", 1, 3)
        found.append(differences)
    assert found[0] == []
    (difference,) = found[1]
    assert difference.array == "stdout" and "parts" in difference.what


def test_every_group_says_what_it_compares(capsys):
    assert compare_versions.main(["--list"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == GROUPS.keys()
    with pytest.raises(SystemExit, match="--only=colours is no group"):
        compare_versions.main(["--only=colours"])
    with pytest.raises(SystemExit, match="--before=nothing is no commit"):
        compare_versions.main(["--before=nothing"])
