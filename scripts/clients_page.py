"""Writes docs/reference/clients.md: what each client needs and which calls are tried.

`python -m scripts.reference` writes it.
"""

from scripts.imports import ROOT
from tests.clients.clients import CLIENTS, Client, version_of
from tests.clients.table import OUTCOMES, ROWS, Row

PAGE = ROOT / "docs" / "reference" / "clients.md"
_HEAD = """# Clients

Other people's clients, pointed at a [gateway](gateway_routes.md) on 127.0.0.1:8080, or at a
[model server](commands/serve.md) on 127.0.0.1:8500 (gRPC) and 127.0.0.1:8501 (REST);
`minilm` is an embedder, `ranker` a model of pairs. A test makes every
call of the table (`python -m scripts.slow clients`) and compares what comes back with the answer to
[our own client](api/serving_client.md). Written by `python -m scripts.reference`, kept true by a test.

Not answered are version 0, which ovmsclient asks for where none is named and TensorFlow Serving's own server does not
find either (say `model_version=1`); token ids at OpenAI's route, which would be those of another vocabulary
(langchain-openai sends text with `check_embedding_ctx_length=False`); and chat routes, 404, since encoders write no
text (give the chat model of a framework another server).

Behind nginx under a prefix: `location /models/ { proxy_pass http://127.0.0.1:8080; }` and `--root_path=/models` of the
gateway. Clients then have the prefix in their addresses: `http://HOST/models/v1`. A test of the same group tries that.

## What each client needs
"""
_FENCES = {"Python": "python", "JavaScript": "js", "Java": "java", "command": "sh"}


def page() -> str:
    """Returns the text that docs/reference/clients.md should have."""
    examples = [
        f"{client.name}:\n\n```{_FENCES[client.language]}\n{client.example}\n```\n" for client in CLIENTS
    ]  # fmt: skip
    rows = [_line(client, row) for client in CLIENTS for row in ROWS if row.client == client.name]
    head = ["## Calls that are tried", "", "| client | version | call | what comes back |", "|---|---|---|---|"]
    return "\n".join([_HEAD, *examples, *head, *rows, ""])


def _line(client: Client, row: Row) -> str:
    back = OUTCOMES[row.answer] if row.answer else f"refused: {row.why}"
    return f"| {client.name} | {version_of(client)} | {row.call} | {back} |"
