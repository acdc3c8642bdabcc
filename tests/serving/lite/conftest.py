"""A tiny model of each kind as `albert_tf.load` returns it, and as a LiteRT version."""

import pytest

import albert_tf
from serving.lite import LiteModel
from tests.serving.conftest import write_export


@pytest.fixture(scope="session")
def both(make_model, tokenizer_of, tmp_path_factory):
    """both(head, family, task, compute): a loaded model, and its version; made once."""
    made = {}

    def make(head="embedder", family="albert", task=None, compute="float32"):
        key = str((head, family, task, compute))
        if key not in made:
            folder = tmp_path_factory.mktemp("lite")
            settings = {"engine": "litert", "inputs": "text", "compute": compute}
            version = write_export(folder, make_model(head, family=family), tokenizer_of(family), task, **settings)
            made[key] = albert_tf.load(folder), LiteModel(version)
        return made[key]

    return make


@pytest.fixture(scope="session")
def vectors(both):
    """An embedder with prompts, whose rows have 20 tokens."""
    prompts = {"query": "what is ", "passage": "the cat: "}
    return both(task={"prompts": prompts, "max_seq_length": 20})
