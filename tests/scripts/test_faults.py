"""The table of faults: what it says of a row, and (slow) every row."""

import subprocess
import sys

import pytest

from scripts.faults import __main__ as faults
from scripts.faults import rows
from scripts.faults.rows import ROWS, Row
from scripts.faults.stage import Failed, Impossible, Process, check, wait_for


def ended(error: Exception | None):
    def run(stage):
        if error is not None:
            raise error
        return "seen"

    return run


@pytest.mark.parametrize(
    ("error", "survived", "seen"),
    [
        (None, "yes", "seen"),
        (Failed("5 wrong"), "no", "5 wrong"),
        (Impossible("needs root"), "not done", "needs root"),
        (KeyError("x"), "no", "KeyError: 'x'"),
    ],
)
def test_what_the_table_says_of_a_row(error, survived, seen, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(rows.ROWS, "made", Row("made", "a thing is done", "it holds", ended(error)))
    monkeypatch.setattr(faults, "export", lambda folder, version: folder.mkdir())
    monkeypatch.setattr(sys, "argv", ["faults", "made", f"--folder={tmp_path}"])
    assert faults.main() == (survived == "no")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"made: {survived} (") and printed[0].endswith(f" s): {seen}")
    assert printed[-1] == f"| {'made':22} | {survived:9} | a thing is done: {seen} |"


def test_a_row_ends_what_it_has_started(tmp_path, monkeypatch):
    started: list[Process] = []

    def run(stage):
        started.append(stage.started("http.server", "0", "--bind=127.0.0.1"))
        wait_for(lambda: started[0].open_files > 0, "it starts")
        check(started[0].runs, "it runs")
        raise Failed("enough")

    monkeypatch.setitem(rows.ROWS, "made", Row("made", "", "", run))
    monkeypatch.setattr(faults, "export", lambda folder, version: folder.mkdir())
    assert faults.run(["made"], tmp_path)["made"][:2] == ("no", "enough")
    assert not started[0].runs


def test_rows_are_listed_and_others_refused(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["faults", "--list"])
    assert faults.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ROWS) >= 18
    monkeypatch.setattr(sys, "argv", ["faults", "no-such-row"])
    with pytest.raises(SystemExit):
        faults.main()
    assert "no row no-such-row; there are " in capsys.readouterr().err


@pytest.mark.slow("faults")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ROWS)
def test_it_is_survived(name, tmp_path):
    # A process of its own: connections and limits of open files are counted in it.
    command = [sys.executable, "-m", "scripts.faults", name, f"--folder={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if f"{name}: not done" in done.stdout:
        pytest.skip(done.stdout.splitlines()[0])
    assert done.returncode == 0, done.stdout + done.stderr
