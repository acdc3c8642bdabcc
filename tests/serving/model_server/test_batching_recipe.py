"""serving/deploy/batching.config: what clients of this library send is answered, whatever shape the answer has."""

from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format

from serving.client import Client
from serving.client.messages import MAX_ROWS
from serving.gateway.scheduler import Limits
from serving.model_server import flags
from serving.wire.protos import BatchingParameters

RECIPE = Path(flags.__file__).parents[1] / "deploy" / "batching.config"
BATCHED = {"enable_batching": True, "batching_parameters_file": str(RECIPE)}


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("rows", [32, 256])
@pytest.mark.few(2)
def test_a_request_of_many_rows_is_answered_with_and_without_batching(start_server, half_plus_two, rows, batching):
    server = start_server(model_base_path=str(half_plus_two), **BATCHED if batching else {})
    assert server.predict(*range(rows)) == [x / 2 + 2 for x in range(rows)]


def test_batching_answers_many_rows_with_an_axis_as_long_as_the_longest(start_server, build, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def words(text):
        return {"words": tf.strings.split(text).to_tensor()}

    build.function(tmp_path / "m" / "1", serving_default=words)
    server = start_server(model_base_path=str(tmp_path / "m"), **BATCHED)
    texts = [*["a fine film"] * 8, "one that is longer by some words"]
    with Client(server.address, "default") as client:
        assert client.predict_text(texts)["words"].shape == (9, 7)


def test_batching_keeps_to_what_every_server_takes():
    batching = text_format.Parse(RECIPE.read_text(), BatchingParameters())
    # The real server cannot join the parts of an answer where they have another number of tokens or words.
    assert not batching.enable_large_batch_splitting.value and not batching.allowed_batch_sizes
    assert batching.max_batch_size.value >= max(MAX_ROWS, Limits().max_batch_rows)
    assert batching.max_enqueued_batches.value >= 2, "the largest request waits for another"
