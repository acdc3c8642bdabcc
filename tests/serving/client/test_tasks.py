"""Vectors, scores and classes of texts: what a model can do is read from its signatures, large inputs are split."""

import contextlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from serving.client import Client
from serving.client.messages import MAX_ROWS
from serving.client.tasks import relevance
from tests.refusals import refused
from tests.serving.gateway.conftest import LABELS, logits, vector

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
