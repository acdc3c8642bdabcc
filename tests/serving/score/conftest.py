"""A model that says of each text what it is, without TensorFlow and without a server."""

import json

import pytest

from serving.score import models, rows
from serving.score.models import ModelSource
from serving.wire.tensors import DT_STRING


def read_lines(path):
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def read_rows(path, size, kept=()):
    """The rows of a file's texts, and fields that are kept, by pieces of so many bytes."""
    return [row for piece in rows.cut([path], size) for row in rows.read(piece, ["text"], kept)]


class Echo:
    inputs, wrong_inputs, outputs = ("text",), (), {"label": (DT_STRING, 1)}

    def __init__(self, source):
        pass

    def __call__(self, columns, outputs):
        return {"label": columns["text"]}


@pytest.fixture
def echo(monkeypatch):
    monkeypatch.setattr(models, "_served", Echo)
    models.open_model.cache_clear()
    yield ModelSource("echo", "h:1", version=1)
    models.open_model.cache_clear()
