"""A server that batches takes fewer rows than are asked: client, gateway and score answer as without batching."""

import json

import httpx
import numpy as np
import pytest
import tensorflow as tf

from serving.client import Client, Connection, ServingError
from serving.gateway.server import GatewayServer
from serving.gateway.service import GatewayOptions
from serving.score.job import score
from serving.score.models import ModelSource
from tests.serving.model_server.conftest import start, wait_for
from tests.serving.model_server.models import export_function, signature

TEXTS = ["a fine film", "fine", "one that is longer by some words", "", "dull", "so so", "a b", "w x y z", "the end"]


@signature(text=([None], tf.string))
def describe(text):
    words = tf.strings.split(text)
    lengths = tf.cast(words.row_lengths(), tf.float32)
    vectors = tf.stack([lengths, *[tf.cast(tf.strings.length(text), tf.float32)] * 11], axis=1)
    with tf.control_dependencies([tf.debugging.assert_none_equal(text, "bad")]):
        return {"embedding": tf.identity(vectors), "words": words.to_tensor(), "starts": words.to_tensor() != ""}


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """The same model without batching, and with at most 4 rows in a batch."""
    folder = tmp_path_factory.mktemp("parts")
    export_function(folder / "m" / "1", serving_default=describe, words=describe)
    file = folder / "batching.config"
    file.write_text("max_batch_size { value: 4 } num_batch_threads { value: 1 } max_enqueued_batches { value: 2 }")
    flags = {"model_name": "m", "model_base_path": str(folder / "m")}
    servers = [start(**flags), start(**flags, enable_batching=True, batching_parameters_file=str(file))]
    yield [server.address for server in servers]
    for server in servers:
        server.stop()


def plain(answer: dict) -> dict:
    return {name: array.tolist() for name, array in answer.items()}


@pytest.mark.parametrize("name", ["serving_default", "words"])
def test_client(targets, name):
    answers = []
    for target in targets:
        with Client(target, "m", signature=name) as client:
            answers.append([plain(client.predict_text(TEXTS)), plain(client.predict({"text": TEXTS[::-1]}))])
            answers[-1].append(client.embed(TEXTS).tolist())
            with pytest.raises(ServingError, match="INVALID_ARGUMENT"):
                client.predict_text([*TEXTS, "bad"])
    assert answers[0] == answers[1]
    assert np.shape(answers[1][0]["words"]) == (9, 7)


def test_gateway(targets):
    answers = []
    for target in targets:
        gateway = GatewayServer(GatewayOptions(Connection(target), ("m",)), "127.0.0.1", 0)
        gateway.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}") as http:
                assert wait_for(lambda: http.get("/health").status_code == 200)
                answers.append(http.post("/embed", json={"inputs": TEXTS}).json())
                assert http.post("/embed", json={"inputs": [*TEXTS, "bad"]}).status_code == 400
        finally:
            gateway.stop()
    assert len(answers[0]) == len(TEXTS) and answers[0] == answers[1]


def test_score(targets, tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join([*TEXTS, "bad"]) + "\n")
    tables = []
    for number, target in enumerate(targets):
        folder = tmp_path / str(number)
        score(str(tmp_path / "rows.txt"), folder, ModelSource("m", target), outputs=("words", "embedding"))
        tables.append([json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()])
    assert tables[0] == tables[1]
    assert [row.get("embedding", [None])[0] for row in tables[1]] == [*(len(text.split()) for text in TEXTS), None]
