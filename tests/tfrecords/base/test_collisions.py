"""Another distribution that brings a package of our names is named, by the function and by every command."""

import os
import sys
from pathlib import Path

import pytest

from tfrecords.base.script import find_collisions

ROOT = Path(__file__).parents[3]


@pytest.fixture
def install(tmp_path):
    """Writes what pip leaves of an installed distribution, as far as it says which files are whose."""

    def write(distribution, *files):
        folder = tmp_path / f"{distribution}.dist-info"
        folder.mkdir()
        (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
        return tmp_path

    return write


@pytest.mark.parametrize("file", ["serving/__init__.py", "tfrecords/io.py", "serving.py", "tfrecords/deep/x.py"])
def test_another_owner_is_named(install, file):
    install("albert_tf-0.1.0", "serving/__init__.py", "tfrecords/__init__.py")
    (sentence,) = find_collisions([str(install("other_one-2.3", "other/__init__.py", file))])
    assert "other_one-2.3" in sentence and f"'{file.split('/')[0].removesuffix('.py')}'" in sentence


@pytest.mark.parametrize("file", ["servings/__init__.py", "x/serving/__init__.py", "tfrecords_io.py", "server.py"])
def test_like_names_are_no_collision(install, file):
    install("albert_tf-0.1.0", "serving/__init__.py", "tfrecords/__init__.py")
    assert find_collisions([str(install("other-2.3", file))]) == []


def test_client_and_whole_library_side_by_side_are_named(install):
    install("albert_tf-0.1.0", "serving/__init__.py")
    (sentence,) = find_collisions([str(install("albert_tf_client-0.1.0", "serving/__init__.py"))])
    assert "albert_tf-0.1.0 and albert_tf_client-0.1.0" in sentence


def test_commands_say_it_and_go_on(install, run_module):
    folder = install("other_one-2.3", "serving/__init__.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    process = run_module("serving.client", "--help", env=environment)
    assert process.returncode == 0 and "--target" in process.stdout
    (line,) = process.stderr.splitlines()
    assert line.startswith("warning: the package 'serving'") and "other_one-2.3" in line


def test_nothing_collides_here():
    assert find_collisions() == [], sys.path
