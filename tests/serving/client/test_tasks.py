"""Vectors, scores and classes of texts: what a model can do is read from its signatures, large inputs are split."""

import asyncio
import contextlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from serving.client import AsyncClient, Client
from serving.client.messages import MAX_ROWS
from serving.client.tasks import relevance
from tests.refusals import refused
from tests.serving.gateway.conftest import LABELS, cut_left, logits, vector

TEXTS = [f"{'word ' * (n % 7)}{n}" for n in range(40)]


@pytest.fixture
def served(fake_server):
    """served(kind): a fake model of that kind, and a client of its server."""
    with contextlib.ExitStack() as stack:

        def make(kind):
            model, server = fake_server(kind)
            return model, stack.enter_context(Client(server.target, "default"))

        yield make


def test_a_call_has_no_more_rows_than_a_batching_server_takes(served):
    model, client = served("embedder")
    client.embed(["a"] * (2 * MAX_ROWS + 1), max_batch_tokens=10_000)
    assert [len(batch) for batch in model.batches] == [MAX_ROWS, MAX_ROWS, 1]


def test_embed_splits_and_keeps_order(served):
    model, client = served("embedder")
    expected = [vector(text.encode()) for text in TEXTS]
    assert_array_equal(client.embed(TEXTS, max_batch_tokens=30), expected)
    assert len(model.batches) > 3
    assert_array_equal(client.embed(TEXTS), expected)
    assert len(model.batches[-1]) == len(TEXTS)
    for wrong, words in (
        ("one text", "texts is one string"), ([], "no rows"), ([("a", "b")], "takes one text a row"),
        (["a", 5], r"texts\[1\]\[0\] is 5, a int; give strings"), ({"a": 1}, "texts is a dict")
    ):  # fmt: skip
        with refused(words):
            client.embed(wrong)
    with refused("gives no score of pairs; its signatures are serving_default, tokenize"):
        client.rerank("q", TEXTS)


def test_rerank_gives_a_score_a_text(served):
    _, client = served("cross-encoder")
    raw = np.array([logits((b"query", text.encode())) for text in TEXTS])
    scores = client.rerank("query", TEXTS, max_batch_tokens=50)
    assert_allclose(scores, np.exp(raw[:, 1]) / np.exp(raw).sum(1), rtol=1e-5)
    assert client.classify([("a", "b")])["label"].tolist()[0] in (b"dull", b"fine")
    for call in (lambda: client.rerank("query", "text"), lambda: client.classify("text")):
        with refused("texts is one string; give a list"):
            call()


def test_classify(served):
    _, client = served("classifier")
    answer = client.classify(TEXTS, max_batch_tokens=30)
    scores = np.array([logits([text.encode()]) for text in TEXTS])
    assert answer["label"].tolist() == [LABELS[one] for one in scores.argmax(1)]
    assert answer["probabilities"].shape == (40, 2)
    with refused("gives no embedding of a text"):
        client.embed(TEXTS)


def test_relevance_does_not_overflow():
    assert relevance(np.array([-1e5, 0.0, 1e5], np.float32)).tolist() == [0.0, 0.5, 1.0]


LONG = "z a b c d e f g h i j k l m n o"


def test_the_clients_ask_for_options(fake_server):
    expected = {
        (): vector(LONG.encode()),
        ("prompt_name",): vector(b"query: " + LONG.encode()),
        ("truncate_left",): vector(cut_left(LONG.encode())),
        ("prompt_name", "truncate_left"): vector(cut_left(b"query: " + LONG.encode())),
    }
    asked = {"prompt_name": "query", "truncate_left": True}
    target = fake_server("prompted embedder")[1].target

    async def embed(options):
        async with AsyncClient(target, "default") as client:
            return await client.embed([LONG], **options)

    with Client(target, "default") as client:
        for names, found in expected.items():
            options = {name: asked[name] for name in names}
            assert_array_equal(client.embed([LONG], **options), [found])
            assert_array_equal(asyncio.run(embed(options)), [found])


def test_the_client_names_the_option_that_a_model_does_not_take(served):
    _, client = served("optional classifier")
    answer = client.classify([LONG], truncate_left=True)
    assert_allclose(answer["logits"], [logits([cut_left(LONG.encode())])])
    assert set(answer) == {"classes", "label", "logits", "probabilities"}
    with refused(r"prompt_name is none of the options of this model \(none\)"):
        served("embedder")[1].embed(["a"], prompt_name="query")
    with refused("truncate_left is none of the options"):
        served("cross-encoder")[1].rerank("q", ["a"], truncate_left=True)
