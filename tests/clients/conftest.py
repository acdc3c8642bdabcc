"""Six tiny models behind one model server and one gateway, and the environments of other people's clients."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.servers import free_port, running_gateway, running_server
from tests.serving.conftest import (  # noqa: F401
    make_model,
    roberta_tokenizer,
    tokenizer,
    tokenizer_of,
    write_export,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Of each model: the head, the task, and settings of its export. The first is the gateway's own choice.
MODELS = {
    "embedder": ("embedder", {"prompts": {"query": "who is ", "passage": "the river "}}, {}),
    "classifier": ("classifier", {"inputs": ["text"], "labels": ["dull", "so so", "fine"]}, {}),
    "tagger": ("token classifier", {"labels": ["O", "B-PER", "I-PER", "B-LOC"]}, {}),
    "spans": ("spans", None, {"max_seq_length": 32, "doc_stride": 8}),
    "words": ("pretrainer", None, {}),
    "pairs": ("regressor", {"inputs": ["sentence1", "sentence2"]}, {}),
}


@pytest.fixture(scope="session")
def models(make_model, tokenizer, made_once):  # noqa: F811
    """The base paths of the models by their names."""

    def export(folder):
        for number, (name, (head, task, settings)) in enumerate(MODELS.items()):
            model = make_model(head, seed=number)
            (folder / name).mkdir()
            write_export(folder / name, model, tokenizer, task, inputs="text", warm_up_lengths="", **settings)

    folder = made_once("clients-models", export)
    return {name: folder / name / "exported" for name in MODELS}


@pytest.fixture(scope="session")
def servers(models, tmp_path_factory):
    """A pair of servers: HOST:PORT of the `gateway`, of the `server` and its `rest`."""
    folder, rest = tmp_path_factory.mktemp("servers"), free_port()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server(models, folder, free_port(), rest))
        url = stack.enter_context(running_gateway(server, ",".join(models), folder, free_port()))
        yield SimpleNamespace(gateway=url.removeprefix("http://"), server=server, rest=f"127.0.0.1:{rest}")
