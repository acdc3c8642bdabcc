"""A settings file says what flags say, strictly; flags given beside it win."""

import dataclasses
import json

import pytest
from absl import flags

from tests.refusals import refused
from tfrecords.base import script, settings
from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class Example(settings.CheckedSettings):
    input: str = settings.setting(help="needed")
    learning_rate: float = settings.setting(0.5, help="a float")
    batch_size: int = settings.setting(8, help="an int")
    fast: bool = settings.setting(False, help="a bool")
    safe: bool | None = settings.setting(None, help="may stay unsaid")
    texts: tuple[str, ...] = settings.setting((), help="may be given several times")
    form: str = settings.setting("a", help="named by its flag", choices=("a", "b"), flag="from")


@pytest.fixture
def read(tmp_path):
    """Reads flags as a command would, from `content` as its settings file and some arguments."""

    def read(content, *arguments):
        values = flags.FlagValues()
        settings.define_flags(Example, values)
        path = tmp_path / "settings.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        values(["command", f"--settings={path}", *arguments])
        return settings.read_flags(Example, values)

    return read


def test_flags_win_over_the_file_and_the_file_over_defaults(read):
    found = read({"input": "a", "batch_size": 4, "learning_rate": 1, "fast": True}, "--batch_size=8", "--nofast")
    assert found == Example(input="a", learning_rate=1.0, batch_size=8, fast=False)
    assert type(found.learning_rate) is float


@pytest.mark.parametrize(
    "content, arguments, safe",
    [({}, [], None), ({}, ["--nosafe"], False), ({"safe": True}, [], True), ({"safe": True}, ["--nosafe"], False)],
)
def test_what_may_stay_unsaid_does_and_what_is_said_counts(read, content, arguments, safe):
    assert read({"input": "a"} | content, *arguments).safe is safe


@pytest.mark.parametrize(
    "content, message",
    [
        ({"input": "a", "safe": 1}, "safe is 1; it must be of type bool"),
        ({"input": "a", "learning_rat": 1.0}, "unknown setting 'learning_rat'; did you mean 'learning_rate'"),
        ({"input": "a", "zzz": 1.0}, "unknown setting 'zzz'; did you mean '"),
        ({"input": "a", "batch_size": "8"}, "batch_size is '8'; it must be of type int"),
        ({"input": "a", "batch_size": True}, "batch_size is True; it must be of type int"),
        ({"input": "a", "batch_size": None}, "batch_size is None; it must be of type int"),
        ({"batch_size": 8}, "--input=... must be given"),
        ({"input": ""}, "--input=... must be given"),
        ({"texts": "a"}, "texts is 'a'; it must be a list of texts"),
        ({"form": "a"}, "unknown setting 'form'; did you mean 'from'"),
        ([1], "must hold a JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_anything_else_is_named(read, content, message):
    with refused(message):
        read(content)


def test_a_flag_may_be_given_several_times_and_have_a_name_of_its_own(read):
    found = read({"input": "a", "from": "b", "texts": ["x"]})
    assert (found.texts, found.form) == (("x",), "b")
    assert read({"input": "a"}, "--texts=x", "--texts=y", "--from=b").texts == ("x", "y")
    assert read({"input": "a"}).texts == ()


@dataclasses.dataclass(frozen=True)
class Bounded(settings.CheckedSettings):
    steps: int = settings.setting(100, help="", at_least=1)
    warmup: int = settings.setting(0, help="", at_least=0, below="steps", flag="warm_up")
    share: float = settings.setting(0.5, help="", at_least=0.0, at_most=1.0)
    dropout: float = settings.setting(-1.0, help="", at_least=0.0, below=1.0, also={-1: "for the task's own"})
    rate: float = settings.setting(1.0, help="", above=0.0)
    few: int | None = settings.setting(None, help="", at_most="steps")
    way: str = settings.setting("a", help="", choices=("", "a", "b"))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"steps": 0}, "--steps=0 must be 1 or more"),
        ({"warmup": 100}, "--warm_up=100 must be from 0 to below --steps=100"),
        ({"warmup": -1}, "--warm_up=-1 must be from 0 to below --steps=100"),
        ({"share": 1.5}, "--share=1.5 must be from 0 to 1"),
        ({"share": float("nan")}, "--share=nan must be from 0 to 1"),
        ({"dropout": 1.0}, "--dropout=1.0 must be from 0 to below 1, or -1 for the task's own"),
        ({"rate": 0.0}, "--rate=0.0 must be above 0"),
        ({"rate": float("inf")}, "--rate=inf is no finite number; give one"),
        ({"few": 101}, "--few=101 must be at most --steps=100"),
        ({"way": "c"}, "--way=c is unknown; choose one of a, b"),
    ],
)
def test_a_value_that_no_run_could_have_is_named(wrong, message):
    with pytest.raises(UserError) as error:
        Bounded(**wrong)
    assert str(error.value) == message


def test_values_at_their_bounds_are_allowed():
    Bounded(steps=1, warmup=0, share=1.0, dropout=-1, rate=1e-9, few=1, way="b")
    Bounded(share=0.0, dropout=0.0)


def test_inherited_settings_take_other_defaults_and_say_what_they_mean():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Theirs(settings.CheckedSettings):
        size: int = settings.setting(5, help="rows", at_least=0)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(Theirs, defaults={"size": 0}, meanings={"size": "as many as fit"}):
        name: str = settings.setting(help="a name")

    assert (Mine(name="a").size, Theirs().size) == (0, 5)
    assert [field.metadata["help"] for field in settings.settings_of(Mine)] == ["rows; 0: as many as fit", "a name"]
    with refused("--size=-1 must be 0 or more"):
        Mine(name="a", size=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfPairs(settings.CheckedSettings, only="task=pairs"):
    loss: str = settings.setting("", help="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfTable(settings.CheckedSettings, only="table"):
    table: str = settings.setting("", help="")
    encoding: str = settings.setting("", help="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfOthers(settings.CheckedSettings, only="task!=pairs"):
    head: bool = settings.setting(False, help="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Modes(OfPairs, OfTable, OfOthers):
    former = {"losses": "--loss"}
    task: str = settings.setting("", help="")


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"loss": "mse"}, "--loss=mse is for --task=pairs; leave it out"),
        ({"encoding": "cp37"}, "--encoding=cp37 is for --table; give both, or leave it out"),
        ({"task": "pairs", "head": True}, "--head=True is not for --task=pairs; leave it out"),
    ],
)
def test_a_setting_of_another_mode_is_named(wrong, message):
    with pytest.raises(UserError) as error:
        Modes(**wrong)
    assert str(error.value) == message
    assert Modes(task="pairs", loss="mse", table="a.csv", encoding="cp37") and Modes(task="x", head=True)


def test_a_flag_that_left_names_its_replacement(tmp_path, capsys):
    (tmp_path / "settings.json").write_text('{"losses": "mse"}')
    with refused(r"settings\.json': --losses is no flag any more; use --loss$"):
        settings.read_settings_file(str(tmp_path / "settings.json"), Modes)
    with pytest.raises(SystemExit):
        script._parse(["command", "--losses=mse"], "", Modes)
    assert "error: --losses is no flag any more; use --loss (" in capsys.readouterr().err
