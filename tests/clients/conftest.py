"""Six tiny models behind one model server and one gateway, and the environments of other people's clients."""

import contextlib
from types import SimpleNamespace

import pytest

from tests.servers import free_port, running_gateway, running_light_server, running_server
from tests.serving.conftest import (  # noqa: F401
    make_model,
    roberta_tokenizer,
    tokenizer,
    tokenizer_of,
    write_export,
)

WHERE_OF_LIGHT = {"gateway": "port", "server": "grpc_port", "rest": "rest_api_port"}
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


@pytest.fixture(scope="session")
def light(make_model, tokenizer, tmp_path_factory):  # noqa: F811
    """The light server of an embedder, without TensorFlow."""
    folder, (head, task, _) = tmp_path_factory.mktemp("light"), MODELS["embedder"]
    version = write_export(folder, make_model(head), tokenizer, task, inputs="text", engine="litert")
    with running_light_server(version.parent, "embedder", folder) as ports:
        addresses = {name: f"127.0.0.1:{ports[flag]}" for name, flag in WHERE_OF_LIGHT.items()}
        yield SimpleNamespace(**addresses)
