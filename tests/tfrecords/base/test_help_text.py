"""--help shows the usual flags in groups, the required ones first, and says in words what a default is."""

import dataclasses
import importlib
import inspect

import pytest

from serving.commands import COMMANDS
from tfrecords.base.settings import flag_name, help_text, setting, settings_of

ABOUT = "Makes tea.\n\npython -m tea --leaves=green"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tea:
    groups = {"Water": "litres heat", "Cup": "size"}
    leaves: str = setting(help="what is brewed")
    litres: float = setting(0.5, help="water")
    heat: int = setting(-1, help="degrees; -1: as the leaves like it", at_least=-1)
    size: str = setting("small", help="of the cup", choices=("", "small", "large"))
    sugar: bool = setting(False, help="sweet")
    warm: bool | None = setting(None, help="keep it warm; left out: as long as the pot does")
    times: int | None = setting(None, help="brewed", flag="again")


def test_groups_usage_and_defaults():
    shown = help_text(Tea, "albert-tf t", ABOUT).splitlines()
    assert shown[:7] == [
        "Usage: albert-tf t --leaves=... [--flag=value ...]", "", "Makes tea.", "", "albert-tf t --leaves=green", "",
        "Required:"
    ]  # fmt: skip
    assert [line for line in shown if line.endswith(":")] == ["Required:", "Water:", "Cup:"]
    for line in (
        "  --litres=X              water (default: 0.5)",
        "  --heat=N                degrees; -1: as the leaves like it (default: -1)",
        "  --size=small|large      of the cup (default: small)",
    ):
        assert line in shown
    assert "--sugar" not in "\n".join(shown) and shown[-1].startswith("--helpfull lists 3 more flags")


def test_all_flags():
    shown = help_text(Tea, "tea", ABOUT, full=True)
    for line in (
        "  --[no]sugar             sweet\n",
        "  --[no]warm              keep it warm; left out: as long as the pot does\n",
        "  --again=N               brewed\n",
    ):
        assert line in shown
    assert "--sugar=true|false" in help_text(Tea, "tea", ABOUT, full=True, switches=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_show_flags_that_they_have_on_two_screens(name):
    module = importlib.import_module(COMMANDS[name][0])
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{COMMANDS[name][0]}.__main__")
    classes = {
        found for found in vars(module).values()
        if inspect.isclass(found) and dataclasses.is_dataclass(found) and settings_of(found)
    }  # fmt: skip
    for settings_class in classes:
        shown = " ".join(getattr(settings_class, "groups", {}).values()).split()
        assert len(shown) == len(set(shown)) and set(shown) <= {
            flag_name(field) for field in settings_of(settings_class)
        }
        assert len(help_text(settings_class, name, module.__doc__).splitlines()) <= 100
    assert not classes or module.__doc__.count(f"\npython -m {COMMANDS[name][0]}") >= 2
