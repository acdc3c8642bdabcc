"""Requests meet in batches: on a clock that jumps, with a model that answers when the test says so."""

import asyncio
import math

import grpc
import numpy as np
import pytest

from serving.client import ServingError
from serving.gateway.errors import Refusal
from serving.gateway.scheduler import BatchAnswer, Scheduler
from serving.gateway.settings import GatewayOptions as Limits


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while there is work, and jumps to the next timer when there is none."""

    def __init__(self):
        super().__init__()
        self._now = 0.0

    def time(self):
        return self._now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0]._when)
        super()._run_once()


class FakeRun:
    """Answers each text with its number; takes `seconds` for a batch, or waits until it is let go."""

    def __init__(self, seconds=0.0):
        self.seconds, self.batches, self.most, self.running = seconds, [], 0, 0
        self.gate, self.failure, self.poison = asyncio.Event(), None, None
        self.refusal, self.hanging = ServingError(grpc.StatusCode.INVALID_ARGUMENT, "no", "", "h:1"), None
        self.gate.set()

    async def __call__(self, batch):
        self.batches.append([int(text) for (text,) in batch.texts])
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            if batch.key[0] == self.hanging:
                await asyncio.sleep(10**6)
            await asyncio.sleep(self.seconds)
            if self.failure or self.poison in self.batches[-1]:
                raise self.failure or self.refusal
            numbers = np.array([int(text) for (text,) in batch.texts])
            return BatchAnswer({"number": numbers}, numbers if batch.counts else None)
        finally:
            self.running -= 1


def on_a_jumping_clock(test):
    def run():
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test())

    run.__name__ = test.__name__
    return run


def numbers(work):
    return work.output("number").tolist()


def stopped(**limits):
    """A model that answers nothing until `run.gate` is set, one batch at a time."""
    run = FakeRun()
    run.gate.clear()
    return run, Scheduler(run, Limits(max_in_flight=1, **limits))


def ask(scheduler, *asked, size=10, timeout_s=100.0, counts=False, model="model", **more):
    rows = [(str(number).encode(),) for number in asked]
    sizes, key = [size] * len(rows), (model, "task")
    return asyncio.ensure_future(scheduler.answer(key, rows, sizes, timeout_s, counts, **more))


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


@on_a_jumping_clock
async def test_a_request_waits_for_nobody_and_tokens_are_counted_for_those_who_ask():
    scheduler = Scheduler(FakeRun(), Limits())
    work = await ask(scheduler, 7)
    assert numbers(work) == [7] and work.tokens == [10] and asyncio.get_running_loop().time() == 0.0
    assert (await ask(scheduler, 1, counts=True)).tokens == [1]


@on_a_jumping_clock
async def test_what_has_arrived_when_the_model_is_free_goes_together():
    run, scheduler = stopped(max_batch_tokens=50)
    asked = [ask(scheduler, number) for number in range(12)]
    await settle()
    assert run.batches == [[0]] and scheduler.queued_rows == 11 and scheduler.queued_tokens == 110
    run.gate.set()
    assert [numbers(work) for work in await asyncio.gather(*asked)] == [[number] for number in range(12)]
    assert run.batches == [[0], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11]]


@on_a_jumping_clock
async def test_a_large_request_comes_back_in_order_from_many_batches():
    run = FakeRun(seconds=1.0)
    scheduler = Scheduler(run, Limits(max_batch_tokens=30, max_in_flight=2, max_queued_tokens=40))
    # It is larger than the queue, and taken because nothing waits.
    work = await ask(scheduler, *range(20), counts=True)
    assert numbers(work) == work.tokens == list(range(20))
    assert run.most == 2 and scheduler.in_flight <= 1
    assert asyncio.get_running_loop().time() == math.ceil(7 / 2)


@on_a_jumping_clock
async def test_a_full_queue_refuses_and_says_when_to_come_back():
    run = FakeRun(seconds=5.0)
    scheduler = Scheduler(run, Limits(max_batch_tokens=10, max_in_flight=1, max_queued_tokens=40))
    await ask(scheduler, 0)  # 10 tokens in 5 seconds
    asked = [ask(scheduler, number) for number in range(5)]
    await settle()
    with pytest.raises(Refusal) as refused:
        await ask(scheduler, 9)
    assert (refused.value.status, refused.value.retry_after) == (429, 20)
    await asyncio.gather(*asked)


@on_a_jumping_clock
async def test_a_failed_batch_fails_its_requests_alone():
    run = FakeRun()
    scheduler = Scheduler(run, Limits(max_in_flight=1, max_batch_tokens=20))
    for run.failure in (ServingError(grpc.StatusCode.UNAVAILABLE, "gone", "", "h:1"), ValueError("a bug")):
        run.batches.clear()
        with pytest.raises(type(run.failure), match=r"gone|a bug"):
            await ask(scheduler, 1, 2, 3, 4, 5)
        # What waited of it is not asked any more.
        assert scheduler.queued_rows == 0 and len(run.batches) == 1
    run.failure = None
    assert numbers(await ask(scheduler, 6)) == [6]


@on_a_jumping_clock
async def test_a_request_that_the_model_refuses_fails_no_other():
    too_large = ServingError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max", "", "h:1")
    for refusal in (None, too_large):
        run, scheduler = stopped()
        run.poison, run.refusal = 3, refusal or run.refusal
        asked = [ask(scheduler, number) for number in range(5)]
        await settle()
        run.gate.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers.pop(3), ServingError) and list(map(numbers, answers)) == [[0], [1], [2], [4]]


@on_a_jumping_clock
async def test_a_model_that_hangs_takes_neither_the_places_nor_the_queue_of_others():
    run = FakeRun(seconds=1.0)
    run.hanging = "a"
    scheduler = Scheduler(run, Limits(max_batch_tokens=10, max_in_flight=2, max_queued_tokens=40))
    stuck = [ask(scheduler, number, model="a") for number in range(6)]
    await settle()
    with pytest.raises(Refusal):
        await ask(scheduler, 6, model="a")
    works = await asyncio.gather(*[ask(scheduler, number, model="b") for number in range(5)])
    assert [numbers(work) for work in works] == [[number] for number in range(5)]
    # One at a time, beyond the places that the other takes.
    assert run.most == 3 and asyncio.get_running_loop().time() == 5.0
    assert len(await asyncio.gather(*stuck, return_exceptions=True)) == 6 and scheduler.queued_rows == 0


@on_a_jumping_clock
async def test_a_request_that_is_larger_than_the_queue_needs_half_of_it_and_leaves_the_other_half():
    run = FakeRun(seconds=1.0)
    scheduler = Scheduler(run, Limits(max_batch_tokens=10, max_in_flight=1, max_queued_tokens=40))
    waiting = [ask(scheduler, number) for number in range(3)]
    await settle()
    large = ask(scheduler, *range(20))
    await settle()
    with pytest.raises(Refusal) as refused:
        await ask(scheduler, 9)
    await asyncio.sleep(refused.value.retry_after)
    assert numbers(await ask(scheduler, 9)) == [9] and scheduler.queued_rows > 9
    assert numbers(await large) == list(range(20))
    await asyncio.gather(*waiting)
    assert scheduler._waiting["model"] == pytest.approx(0)


@on_a_jumping_clock
async def test_a_request_whose_answer_is_too_large_ends_at_once_and_alone():
    run = FakeRun(seconds=1.0)
    scheduler = Scheduler(run, Limits(max_batch_tokens=20, max_in_flight=1))
    taken = []

    def take(size):
        taken.append(size)
        if sum(taken) > 40:
            raise MemoryError

    large, other = ask(scheduler, *range(20), take=take), ask(scheduler, 20)
    with pytest.raises(MemoryError):
        await large
    assert sum(taken[:-1]) <= 40 < sum(taken) and asyncio.get_running_loop().time() <= 4.0
    assert numbers(await other) == [20] and scheduler.queued_rows == 0


@on_a_jumping_clock
async def test_closing_tells_those_who_wait():
    _, scheduler = stopped()
    asked = [ask(scheduler, number) for number in range(3)]
    await settle()
    await scheduler.close()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [answer.status for answer in answers] == [503, 503, 503]
