"""`scripts.slow`, on a project of one file that the test writes."""

import json

import pytest

from scripts import slow
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
