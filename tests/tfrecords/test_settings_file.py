"""A settings file says what flags say, strictly; flags given beside it win."""

import dataclasses
import json

import pytest
from absl import flags

from tfrecords.base import settings
from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class Example:
    input: str = settings.setting(help="needed")
    learning_rate: float = settings.setting(0.5, help="a float")
    batch_size: int = settings.setting(8, help="an int")
    fast: bool = settings.setting(False, help="a bool")
    safe: bool | None = settings.setting(None, help="may stay unsaid")


@pytest.fixture
def read(monkeypatch, tmp_path):
    """Reads flags as a command would, from `content` as its settings file and some arguments."""

    def read(content, *arguments: str) -> Example:
        values = flags.FlagValues()
        monkeypatch.setattr(flags, "FLAGS", values)
        for kind, define in settings._DEFINE.items():
            monkeypatch.setitem(settings._DEFINE, kind, lambda *a, define=define: define(*a, flag_values=values))
        monkeypatch.setattr(flags, "DEFINE_string", lambda *a, d=flags.DEFINE_string: d(*a, flag_values=values))
        settings.define_flags(Example)
        path = tmp_path / "settings.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        values(["command", f"--settings={path}", *arguments])
        return settings.read_flags(Example)

    return read


def test_flags_win_over_the_file_and_the_file_over_defaults(read):
    found = read({"input": "a", "batch_size": 4, "learning_rate": 1, "fast": True}, "--batch_size=8", "--nofast")
    assert found == Example(input="a", learning_rate=1.0, batch_size=8, fast=False)
    assert type(found.learning_rate) is float


@pytest.mark.parametrize(
    ("content", "arguments", "safe"),
    [({}, [], None), ({}, ["--nosafe"], False), ({"safe": True}, [], True), ({"safe": True}, ["--nosafe"], False)],
)
def test_what_may_stay_unsaid_does_and_what_is_said_counts(read, content, arguments, safe):
    assert read({"input": "a"} | content, *arguments).safe is safe


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"input": "a", "safe": 1}, "safe is 1; it must be of type bool"),
        ({"input": "a", "learning_rat": 1.0}, "unknown setting 'learning_rat'; did you mean 'learning_rate'"),
        ({"input": "a", "zzz": 1.0}, "unknown setting 'zzz'; did you mean '"),
        ({"input": "a", "batch_size": "8"}, "batch_size is '8'; it must be of type int"),
        ({"input": "a", "batch_size": True}, "batch_size is True; it must be of type int"),
        ({"input": "a", "batch_size": None}, "batch_size is None; it must be of type int"),
        ({"batch_size": 8}, "--input=... must be given"),
        ([1], "must hold a JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_anything_else_is_named(read, content, message):
    with pytest.raises(UserError, match=message):
        read(content)
