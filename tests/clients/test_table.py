"""The table of clients and what belongs to it: programs, answers and pins."""

import ast
import re

import pytest

from tests.clients.answers import Answers
from tests.clients.clients import CLIENTS, HERE, version_of
from tests.clients.table import OUTCOMES, ROWS

LANGUAGES = {"Python": "calls*.py", "command": "calls*.py", "JavaScript": "calls.mjs"}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_has_a_version_calls_and_programs_for_them(client):
    rows = [row for row in ROWS if row.client == client.name]
    assert rows and re.fullmatch(r"\d+(\.\d+)*", version_of(client))
    source = "\n".join(path.read_text("utf-8") for path in sorted(HERE.glob(LANGUAGES[client.language])))
    if client.language in ("Python", "command"):
        functions = ast.FunctionDef, ast.AsyncFunctionDef
        programs = {node.name for node in ast.parse(source).body if isinstance(node, functions)}
    else:
        programs = set(re.findall(r"^  (?:async )?(\w+)(?:\(\) {|: )", source, re.MULTILINE))
    assert {row.program for row in rows} - programs == set()
    assert len(client.example.splitlines()) <= 4


def test_every_row_says_what_comes_back():
    assert {row.client for row in ROWS} == {client.name for client in CLIENTS}
    assert len({(row.client, row.program) for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.answer in OUTCOMES if row.answer else row.refused and row.why, row
    for outcome in OUTCOMES:
        assert hasattr(Answers, "_" + outcome.replace(" ", "_")), outcome
