"""Which tests a changed file needs, on a small repository."""

import subprocess

import pytest

from scripts.changed_tests import changed_files, near_and_far
from scripts.imports import Sources, distances

FILES = {
    "tfrecords/base/errors.py": "class UserError(Exception): ...",
    "tfrecords/__init__.py": "",
    "tfrecords/trie.py": "",
    "tfrecords/corpus.py": "from tfrecords.base.errors import UserError\nfrom tfrecords.trie import Trie",
    "albert_tf/__init__.py": "from albert_tf.models.classifier import Classifier",
    "albert_tf/models/heads.py": "",
    "albert_tf/models/classifier.py": "from albert_tf.models.heads import Head",
    "albert_tf/run.py": "def main():\n    import albert_tf.models.classifier",
    "tests/conftest.py": "",
    "tests/albert_tf/test_classifier.py": "from albert_tf.models.classifier import Classifier",
    "tests/albert_tf/test_habits.py": "from albert_tf import Classifier",
    "tests/albert_tf/test_commands.py": "run('albert_tf.run', 'settings.json')",
    "tests/tfrecords/test_corpus.py": "from tfrecords.corpus import read",
    "tests/tfrecords/test_corpus_long.py": "from tfrecords.corpus import read",
    "tests/tfrecords/test_build.py": "from tfrecords.corpus import read",
}


@pytest.fixture
def repository(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "near", "far"),
    [
        ("tfrecords/corpus.py", "test_corpus test_corpus_long", "test_build"),
        # No test has its name: the tests of the nearest file that imports it.
        ("tfrecords/trie.py", "test_corpus test_corpus_long", "test_build"),
        # Through a package that only hands the name on.
        ("albert_tf/models/heads.py", "test_classifier", "test_habits"),
        # A command is named, not imported; so is a file that is no Python.
        ("albert_tf/run.py", "test_commands", ""),
        ("scripts/settings.json", "test_commands", ""),
        ("tests/tfrecords/test_build.py", "test_build", ""),
        ("docs/nowhere.md", "", ""),
        ("tests/conftest.py", " ".join(path[:-3].split("/")[-1] for path in FILES if "/test_" in path), ""),
    ],
)
def test_near_and_far(repository, path, near, far):
    found = [sorted(test.split("/")[-1][:-3] for test in tests) for tests in near_and_far(path, Sources(repository))]
    assert found == [sorted(near.split()), sorted(far.split())]


def test_changed_and_new_files_are_named(repository):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert changed_files(root=repository) == []
    (repository / "tfrecords" / "trie.py").write_text("# changed")
    (repository / "new file.txt").write_text("new")
    assert changed_files(root=repository) == ["new file.txt", "tfrecords/trie.py"]
    git("add", ".")
    git("commit", "-m", "second")
    assert changed_files(root=repository) == []
    assert changed_files("HEAD~1", root=repository) == ["new file.txt", "tfrecords/trie.py"]


def test_imports_inside_functions_close_no_circle(repository):
    (repository / "tfrecords" / "trie.py").write_text("def build():\n    from tfrecords.corpus import read\n")
    assert Sources(repository).circle() == []
    (repository / "tfrecords" / "trie.py").write_text(
        "try:\n    from tfrecords import corpus\nexcept ImportError: ...\n"
    )
    ring = Sources(repository).circle()
    assert ring[0] == ring[-1] and set(ring) == {"tfrecords/trie.py", "tfrecords/corpus.py"}


def test_type_checking_imports_are_none(repository):
    (repository / "tfrecords" / "trie.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tfrecords.corpus import read\n"
    )
    assert Sources(repository).graph["tfrecords/trie.py"] == set()


def test_distances_are_the_fewest_steps():
    edges = {"a": {"b", "c"}, "b": {"c"}, "c": {"d"}, "d": {"a"}}
    assert distances(edges, "a") == {"a": 0, "b": 1, "c": 1, "d": 2}
