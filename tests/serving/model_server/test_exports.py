"""What serving.export writes, behind one server with its own batching and the gateway, asked by several clients."""

import collections
import contextlib
import functools
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from serving.client import Client
from serving.model_server import telemetry
from tests.conftest import functions_run
from tests.serving.conftest import LABELS, assert_close
from tests.serving.gateway.conftest import wait_until_healthy
from tests.serving.model_server.conftest import free_port, start_models
from tests.slow_groups import some_slow

TEXTS = ["the film is dull", "fine", "", "a fine river runs in paris the capital of france", "who sat in the cat"]
OTHERS = ["what is it", "", "a mat", "paris " * 9, "who"]


# A server of each: the second one's exports are in every contract of functions, and saved and served in the slow group.
TOGETHER = (("ids", "int8"), ("regressor", "spans", "pretrainer"))
QUICK = TOGETHER[0], "exports"


@pytest.fixture(scope="module")
def server_of(exported, tmp_path_factory):
    """server_of(name): a server of that export and others, with batching; its `gateway` is a client of the gateway."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def served(names):
            folder = tmp_path_factory.mktemp("server")
            (folder / "batching").write_text(
                "max_batch_size { value: 8 } batch_timeout_micros { value: 30000 } num_batch_threads { value: 2 }\n"
                "max_enqueued_batches { value: 100 } pad_variable_length_inputs: true allowed_batch_sizes: 4\n"
                "allowed_batch_sizes: 8\n"
            )
            models = {name: exported(name).parent for name in names}
            batching = {"enable_batching": True, "batching_parameters_file": str(folder / "batching")}
            running = start_models(folder, models, gateway_port=free_port(), **batching)
            stack.callback(running.stop)
            url = f"http://127.0.0.1:{running.options.gateway_port}"
            wait_until_healthy(url)
            running.gateway = stack.enter_context(httpx.Client(base_url=url, timeout=60))
            return running

        yield lambda name: served(next(names for names in TOGETHER if name in names))


def by_length(*names):
    random, requests = np.random.default_rng(0), []
    for length in (3, 17, 5, 23, 9, 24, 4, 3):
        ids = np.array([[2, *random.integers(5, 60, length - 2), 3]], np.int32)
        whole = {"input_ids": ids, "input_mask": 0 * ids + 1, "segment_ids": 0 * ids}
        whole |= {"lengths": np.array([length], np.int32), "threshold": random.uniform(0.3, 0.9, 1).astype(np.float32)}
        requests.append({name: whole[name] for name in names})
    return requests


def contexts():
    question = {"question": ["what is the capital of france"]}
    return [question | {"context": [f"{text} {text} " * count]} for text in TEXTS for count in (1, 4)]


# More than 5 s for the first: it waits for the server, which loads and warms up its models.
@pytest.mark.parametrize(
    "model, signature, requests",
    some_slow(
        [
            ("ids", "early_exit", by_length("input_ids", "lengths", "threshold")),
            ("ids", "masked", by_length("input_ids", "input_mask", "segment_ids")),
            # Without padding, in 8 bits.
            ("int8", "ids", by_length("input_ids", "lengths")),
            ("int8", "serving_default", [{"text": [text]} for text in TEXTS + OTHERS]),
            ("spans", "serving_default", contexts()),
            ("pretrainer", "fill_mask", [{"text": [f"{one} [MASK]" * count]} for one in TEXTS for count in (0, 1, 2)]),
        ],
        *QUICK,
    ),
)
def test_requests_of_mixed_lengths_answer_in_a_batch_as_alone(server_of, functions_of, model, signature, requests):
    with Client(server_of(model).address, model, signature=signature) as client, ThreadPoolExecutor(8) as pool:
        alone = [client.predict(request) for request in requests]
        together = list(pool.map(client.predict, requests))
    for one, other in zip(alone, together, strict=True):
        assert other.keys() == one.keys() and len(other) > 1
        assert_close(other, one)
    # The products of 8 bits run in graphs alone.
    if model != "int8":
        with functions_run(eagerly=True):
            for request, one in zip(requests[::4], alone[::4]):
                assert_close(one, functions_of(model)(signature, **request))
    if model == "spans":
        assert sum(bool(answer["answer"][0]) for answer in alone) == 8
    if signature == "early_exit":
        assert {answer["steps"][0] for answer in alone} == {1, 2}


def test_truncated_texts_are_counted_once_and_whatever_is_asked(server_of):
    texts = {"text": ["the \u2603 cat", "the film is dull " * 40, "fine " * 100]}

    def counted():
        found = re.findall(r':albert_tf:serving:(\w+)\{model_name="int8"\} (\S+)', telemetry.exposition())
        return collections.Counter({name: int(float(value)) for name, value in found})

    with Client(server_of("int8").address, "int8") as client:
        before = counted()
        answer = client.predict(texts)
        client.predict(texts, outputs=["label"])
        client.predict(texts, outputs=["lengths", "truncated_tokens"], signature="tokenize")
    assert answer["truncated_tokens"][0] == 0 and (answer["truncated_tokens"][1:] > 0).all()
    assert answer["unknown_tokens"][0] > 0
    sums = {name: 2 * answer[name].sum() for name in ("text_tokens", "truncated_tokens", "unknown_tokens")}
    found = counted() - before
    # The gateway of this server looks at its models now and then, by a text.
    assert found.pop("text_inputs") >= 2 * 3
    assert found == sums | {"truncated_inputs": 2 * 2}


@pytest.mark.parametrize(
    "model, can",
    some_slow(
        [
            ("int8", ["classify", "tokenize"]),
            ("pretrainer", ["embed", "embed_sparse", "fill_mask", "tokenize"]),
            ("regressor", ["classify", "rerank", "tokenize"]),
            ("spans", ["answer", "tokenize"]),
        ],
        *QUICK,
    ),
)
def test_the_gateway_shows_pieces_and_what_there_is(server_of, model, can):
    server = server_of(model)
    if model in ("int8", "spans"):
        (pieces,) = server.gateway.post("/tokenize", json={"inputs": "a dull film", "model": model}).json()
        assert [piece["text"] for piece in pieces] == ["[CLS]", "a", "dull", "film", "[SEP]"]
    models = {found["id"]: found for found in server.gateway.get("/info").json()["models"]}
    assert models[model]["can"] == can
    assert model != "int8" or models["int8"]["labels"] == LABELS
