"""Vectors, scores and classes of texts: what a model can do is read from its signatures, large inputs are split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from serving.client import Client
from serving.client.messages import MAX_ROWS
from serving.client.tasks import relevance
from tests.refusals import refused
from tests.serving.gateway.conftest import LABELS, SIGNATURES, FakeModel, logits, vector
from tests.stand_in import StandIn
from tfrecords.base.columns import batches

TEXTS = [f"{'word ' * (n % 7)}{n}" for n in range(40)]


@pytest.fixture
def served(request):
    model = FakeModel(request.param)
    with StandIn(model, signatures=SIGNATURES[request.param]) as server, Client(server.target, "default") as client:
        yield model, client


@given(st.lists(st.integers(1, 100), min_size=1, max_size=50), st.integers(1, 200))
def test_batches_hold_every_row_once_within_their_bound(sizes, most):
    found = [batch.tolist() for batch in batches(sizes, most)]
    assert sorted(row for batch in found for row in batch) == list(range(len(sizes)))
    assert all(len(batch) == 1 or sum(sizes[row] for row in batch) <= most for batch in found)
    flat = [sizes[row] for batch in found for row in batch]
    assert flat == sorted(flat)


@pytest.mark.parametrize("served", ["embedder"], indirect=True)
def test_a_call_has_no_more_rows_than_a_batching_server_takes(served):
    model, client = served
    client.embed(["a"] * (2 * MAX_ROWS + 1), max_batch_tokens=10_000)
    assert [len(batch) for batch in model.batches] == [MAX_ROWS, MAX_ROWS, 1]


@pytest.mark.parametrize("served", ["embedder"], indirect=True)
def test_embed_splits_and_keeps_order(served):
    model, client = served
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


@pytest.mark.parametrize("served", ["cross-encoder"], indirect=True)
def test_rerank_gives_a_score_a_text(served):
    _, client = served
    raw = np.array([logits((b"query", text.encode())) for text in TEXTS])
    scores = client.rerank("query", TEXTS, max_batch_tokens=50)
    assert_allclose(scores, np.exp(raw[:, 1]) / np.exp(raw).sum(1), rtol=1e-5)
    assert client.classify([("a", "b")])["label"].tolist()[0] in (b"dull", b"fine")
    for call in (lambda: client.rerank("query", "text"), lambda: client.classify("text")):
        with refused("texts is one string; give a list"):
            call()


@pytest.mark.parametrize("served", ["classifier"], indirect=True)
def test_classify(served):
    _, client = served
    answer = client.classify(TEXTS, max_batch_tokens=30)
    scores = np.array([logits([text.encode()]) for text in TEXTS])
    assert answer["label"].tolist() == [LABELS[one] for one in scores.argmax(1)]
    assert answer["probabilities"].shape == (40, 2)
    with refused("gives no embedding of a text"):
        client.embed(TEXTS)


def test_relevance_does_not_overflow():
    assert relevance(np.array([-1e5, 0.0, 1e5], np.float32)).tolist() == [0.0, 0.5, 1.0]
