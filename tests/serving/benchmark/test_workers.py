"""Load shared out to processes."""

import os
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.benchmark.load import LoadShare, due_times
from serving.benchmark.workers import Workers, split
from serving.client import Connection
from tests.stand_in import StandIn, constant_answer
from tfrecords.base.errors import UserError


def share(**settings):
    return LoadShare([b"a", b"b", b"c"], [constant_answer()] * 3, timeout_s=5.0, start=0.0, seconds=0.3, **settings)


@given(requests=st.integers(0, 60), processes=st.integers(1, 7))
def test_arrivals_are_dealt_out_whole_and_with_their_items(requests, processes):
    whole = share(due=np.arange(requests) / 10)
    dealt = {}
    for part in split(whole, processes):
        items = (np.arange(len(part.due)) * part.item_step + part.first_item) % 3
        dealt.update(zip(part.due.tolist(), items.tolist(), strict=True))
    assert dealt == {i / 10: i % 3 for i in range(requests)}


@given(clients=st.integers(1, 20), processes=st.integers(1, 7))
def test_clients_are_dealt_out_evenly_and_start_at_different_items(clients, processes):
    parts = split(share(clients=clients, least_requests=100), processes)
    sizes = [part.clients for part in parts]
    assert sum(sizes) == clients and max(sizes) - min(sizes) <= 1
    assert sum(part.least_requests for part in parts) >= 100
    starts = [part.first_item + client for part in parts for client in range(part.clients)]
    assert sorted(starts) == list(range(clients))


def test_several_processes_send_one_schedule_and_end_with_the_block():
    seen = []

    def note(request, context):
        seen.append(request)
        return constant_answer()

    with StandIn(note) as server, Workers(Connection(server.target, attempts=1), processes=2) as workers:
        processes = [child.process for child in workers._children]
        assert all(process.is_alive() for process in processes)
        samples = workers.run(share(due=due_times("constant", 100, 0.3)))
        again = workers.run(share(clients=2, item_step=2))
    assert not any(process.is_alive() for process in processes)
    assert len(samples.due) == 30 and (samples.code == 0).all()
    assert (samples.sent >= samples.due).all() and (samples.done >= samples.sent).all()
    assert sorted(seen[:30]) == sorted([b"a", b"b", b"c"] * 10)
    np.testing.assert_allclose(np.sort(samples.due), np.arange(30) / 100)
    assert len(again.due) > 2 and not samples.differing


def test_a_killed_generator_is_an_error_not_a_hang():
    with StandIn() as server, Workers(Connection(server.target, attempts=1), processes=2) as workers:
        os.kill(workers._children[0].process.pid, signal.SIGKILL)
        with pytest.raises(UserError, match="generator process died"):
            workers.run(share(clients=2))
