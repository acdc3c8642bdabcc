"""Every call of the table: real clients, of the versions that are pinned, against one pair of servers.

Python clients are installed into an environment of their own, or are where CLIENTS_PYTHON says; those in JavaScript
likewise, or where CLIENTS_NPM names a folder with `node_modules`.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.clients.answers import WHERE, Answers, same
from tests.clients.clients import CLIENTS, HERE, PACKAGE, REQUIREMENTS
from tests.clients.table import ROWS

pytestmark = [pytest.mark.slow("clients"), pytest.mark.timeout(900)]
CLIENT = {client.name: client for client in CLIENTS}


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)


def found(program):
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"there is no {program} on the PATH")
    return path


def installed(done):
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def python():
    """The interpreter that has the Python clients."""
    if "CLIENTS_PYTHON" in os.environ:
        yield os.environ["CLIENTS_PYTHON"]
        return
    with tempfile.TemporaryDirectory() as folder:
        installed(run(sys.executable, "-m", "venv", folder))
        pip = [Path(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # One small package first: where it does not come, there is no registry.
        small = run(*pip, "requests")
        if small.returncode:
            pytest.skip(f"nothing can be installed: {small.stderr.strip().splitlines()[-1]}")
        installed(run(*pip, "--requirement", REQUIREMENTS))
        yield pip[0]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A folder with calls.mjs and the JavaScript clients."""
    found("node")
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copy(HERE / "calls.mjs", folder)
    if "CLIENTS_NPM" in os.environ:
        (folder / "node_modules").symlink_to(Path(os.environ["CLIENTS_NPM"], "node_modules").resolve())
        return folder
    npm = found("npm")
    asked = run(npm, "view", "openai", "version")
    if asked.returncode:
        pytest.skip(f"nothing can be installed: {asked.stderr.strip().splitlines()[-1]}")
    shutil.copy(PACKAGE, folder)
    installed(run(npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder))
    return folder


@pytest.fixture(scope="module")
def lines(servers, request):
    """lines(client): what its programs printed, by their names; all of a client run in one process."""

    @functools.cache
    def of(name):
        client, programs = CLIENT[name], [row.program for row in ROWS if row.client == name]
        if client.language == "JavaScript":
            command = ["node", request.getfixturevalue("scripts") / "calls.mjs"]
        else:
            if client.language == "command":
                found(name)
            here = client.own or client.language == "command"
            command = [sys.executable if here else request.getfixturevalue("python"), HERE / "calls.py"]
        return printed(command, programs, servers)

    return of


def printed(command, programs, servers):
    """What programs print of these servers, by their names."""
    done = run(*command, *programs, input=json.dumps(WHERE | vars(servers)))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"program"')]
    assert len(lines) == len(programs), done.stderr[-2000:]
    return {line["program"]: line for line in lines}


def test_openais_client_gets_the_same_of_the_light_server(light, python):
    rows, answers = [row for row in ROWS if row.client == "openai"], Answers(light.server)
    lines = printed([python, HERE / "calls.py"], [row.program for row in rows], light)
    for row in rows:
        check(row, lines[row.program], answers)


@pytest.fixture(scope="module")
def answers(servers):
    return Answers(servers.server)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.client}: {row.program}")
def test_a_client_gets_the_answer_of_our_own(row, lines, answers):
    check(row, lines(row.client)[row.program], answers)


def check(row, line, answers):
    """Fails unless a program's line is what its row of the table says."""
    if row.refused:
        assert "error" in line, f"answered: {line['answer']}"
        assert re.search(row.refused, line["error"], re.DOTALL), line["error"]
        return
    assert "error" not in line, f"{line['error']}\n{line.get('trace')}"
    answer = line["answer"]
    assert same(answer, answers[row.answer]), f"{str(answer)[:500]}\nin place of {str(answers[row.answer])[:500]}"
