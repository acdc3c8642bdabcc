"""TensorFlow does not lend its symbols to libraries that are loaded later; whose command a process is."""

import sys
from importlib import metadata

import pytest
import tensorflow as tf

from tfrecords.base.machine.started import LocalSymbols, is_our_command

FLAGS = "tensorflow.python.pywrap_dlopen_global_flags"


@pytest.mark.parametrize(
    "version, refused", [("2.20.0", True), ("2.21.1", True), ("2.19.1", False), ("2.22.0", False), ("", False)]
)
def test_only_the_versions_that_lend_them_are_told_not_to(monkeypatch, version, refused):
    def look_up(name):
        if name == "tensorflow" or not version:
            raise metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(metadata, "version", look_up)
    assert LocalSymbols.find_spec("tensorflow") is None
    if refused:
        with pytest.raises(ImportError):
            LocalSymbols.find_spec(FLAGS)
    else:
        assert LocalSymbols.find_spec(FLAGS) is None


def test_this_process_has_them_to_itself_and_one_that_does_not_is_warned(monkeypatch):
    """The tests import this library first."""
    assert tf.__version__ and LocalSymbols in sys.meta_path and FLAGS not in sys.modules
    monkeypatch.setitem(sys.modules, FLAGS, None)
    with pytest.warns(match="albert_tf first"):
        LocalSymbols.find_spec("triton")


def test_an_argument_m_of_a_script_is_not_pythons(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", [*sys.argv, "-m"])
    assert not is_our_command()
