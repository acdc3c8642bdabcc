"""`scripts.slow` and `scripts.mutants`, each on a project of one file that the test writes."""

import json
import subprocess

import pytest

from scripts import mutants, slow
from tests.slow_groups import GROUPS, group_of

CONFTEST = "def pytest_configure(config):\n    config.addinivalue_line('markers', 'slow_models: .')\n"
SLOW = "import pytest\n@pytest.mark.slow_models\ndef test_it():\n    {}\n"


@pytest.mark.parametrize(
    "body, status, tests", [("assert True", 0, 1), ("assert False", 1, None), ("pytest.skip('no extra')", 1, None)]
)
def test_a_group_is_written_down_only_where_a_test_of_it_passed(tmp_path, monkeypatch, capsys, body, status, tests):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_one.py").write_text(SLOW.format(body))
    monkeypatch.setattr(slow, "ROOT", tmp_path)
    monkeypatch.setattr(slow, "RUNS", tmp_path / "runs.json")
    monkeypatch.setenv("TEST_WORKERS", "0")
    monkeypatch.setattr("sys.argv", ["slow", "models"])
    assert slow.main() == status
    runs = json.loads((tmp_path / "runs.json").read_text()) if status == 0 else {}
    assert runs.get("models", {}).get("tests") == tests
    monkeypatch.setattr("sys.argv", ["slow", "--list"])
    slow.main()
    words = capsys.readouterr().out
    assert ("models       passed 20" in words) == (status == 0) and "depth        never passed" in words


def test_every_test_file_has_a_group(request):
    assert {group_of(item) for item in request.session.items} <= set(GROUPS)


def test_a_fault_is_caught_or_lives(tmp_path, monkeypatch, capsys):
    (tmp_path / "area.py").write_text("def area(a, b):\n    return a * b\n\n\ndef unused():\n    return 1\n")
    (tmp_path / "test_area.py").write_text("from area import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n")
    entries = {"a * b": "a + b", "return 1": "return 2"}
    lines = [
        f'[[mutant]]\nfile = "area.py"\nold = "{old}"\nnew = "{new}"\npromise = "{new}"\ntests = ["test_area.py"]\n'
        for old, new in entries.items()
    ]
    (tmp_path / "mutants.toml").write_text("".join(lines))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    before = (tmp_path / "area.py").read_text()

    def planted(*arguments):
        monkeypatch.setattr("sys.argv", ["mutants", f"--table={tmp_path}/mutants.toml", "--jobs=1", *arguments])
        return mutants.main(), capsys.readouterr().out

    status, words = planted()
    assert status == 1 and "caught: area.py: a + b by test_area.py::test_area" in words
    assert "lives: area.py: return 2" in words and "1 caught, 1 lives" in words
    assert planted("--only=a \\+ b")[0] == 0
    (tmp_path / "mutants.toml").write_text(lines[0] + lines[1] + 'lives = "nothing calls it"\n')
    assert planted()[0] == 0 and (tmp_path / "area.py").read_text() == before
    with pytest.raises(SystemExit):
        planted("--only=no such fault")
