"""Requests of the shape that was asked for."""

import contextlib

import numpy as np
import pytest

from serving.benchmark import workload
from serving.benchmark.workload import WorkloadMaker
from serving.client import Client
from serving.wire import protos
from serving.wire.tensors import read_tensor
from tests.refusals import refused
from tests.stand_in import IDS, TEXT, StandIn

LINES = ["A short line.", "A line that is rather longer than the first one was.", "Third!"]


class CharacterTokenizer:
    cls_id, sep_id = 101, 102

    def encode(self, text):
        return [ord(character) for character in text]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """make(inputs, text=False, tokenizer=False) -> a WorkloadMaker for a stand-in server."""
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES))
    monkeypatch.setattr("tfrecords.tokenizers.loading.load_tokenizer", lambda path: CharacterTokenizer())

    with contextlib.ExitStack() as stack:

        def maker(inputs, text=False, tokenizer=False):
            server = stack.enter_context(StandIn(inputs=inputs))
            client = stack.enter_context(Client(server.target, "default"))
            return WorkloadMaker(
                client, client.signature(), str(path) if text else "", "some.model" if tokenizer else ""
            )

        yield maker


def sent(made):
    """The requests as a server reads them."""
    requests = [protos.PredictRequest.FromString(request) for request in made.requests]
    return [{name: read_tensor(tensor) for name, tensor in request.inputs.items()} for request in requests]


@pytest.mark.parametrize("length", [1, 2, 12, 128])
def test_rows_are_as_long_as_asked(make, length):
    made = make(IDS).of_length(length, batch=3)
    arrays = sent(made)
    assert len(arrays) == workload.DISTINCT
    assert all(request["input_ids"].shape == (3, length) for request in arrays)
    assert all((request["lengths"] == length).all() for request in arrays)
    if length >= 2:
        assert arrays[0]["input_ids"][0, 0] == 2 and arrays[0]["input_ids"][0, -1] == 3


def test_requests_differ_and_are_the_same_in_the_next_run(make):
    first, same = (make(IDS).of_length(16).requests for _ in range(2))
    assert len(set(first)) == workload.DISTINCT and first == same


def test_texts_have_as_many_words_as_asked(make):
    made = make(TEXT).of_length(7, batch=2)
    assert made.unit == "words"
    for request in sent(made):
        assert [len(row.split()) for row in request["text"]] == [7, 7]


def test_texts_of_a_file_are_sent_whole(make):
    texts = {row.decode() for request in sent(make(TEXT, text=True).mixed()) for row in request["text"]}
    assert texts == set(LINES)


def test_mixed_lengths_are_the_texts_own(make):
    made = make(IDS, text=True, tokenizer=True).mixed(max_length=20)
    lengths = np.array([request["lengths"][0] for request in sent(made)])
    # Of the three lines two fit with [CLS] and [SEP]; the long one is cut.
    assert set(lengths) == {len(LINES[0]) + 2, 20, len(LINES[2]) + 2}
    assert len(lengths) == workload.DISTINCT_MIXED and made.length is None
    # Each line is as likely: 128 draws of probability 1/3.
    assert all(20 < count < 66 for count in np.unique(lengths, return_counts=True)[1])


def test_what_cannot_be_made_is_said(make):
    with refused(r"takes .*image"):
        make({"image": (1, 2)})
    with refused("--tokenizer"):
        make(IDS, text=True)
