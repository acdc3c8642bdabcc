"""Which rows go next: never too many tokens, like lengths together, nobody forgotten."""

from hypothesis import example, given
from hypothesis import strategies as st

from serving.gateway.token_queue import QueuedRow, TokenQueue

SIZES = st.lists(st.integers(1, 600), min_size=1, max_size=12)


def rows_of(owner, sizes):
    return [QueuedRow(owner, number, (b"",), size) for number, size in enumerate(sizes)]


def queue_of(**requests):
    queue = TokenQueue()
    for owner, sizes in requests.items():
        queue.add("key", rows_of(owner, sizes))
    return queue


def drained(queue, max_tokens, max_rows):
    batches = []
    while queue:
        batches.append(queue.take(max_tokens, max_rows))
    return batches


@given(st.lists(st.tuples(st.sampled_from("ab"), SIZES), max_size=10), st.integers(1, 1200), st.integers(1, 9))
def test_every_row_goes_once_and_batches_keep_their_bounds(requests, max_tokens, max_rows):
    queue, sent = TokenQueue(), []
    for owner, (key, sizes) in enumerate(requests):
        rows = rows_of(owner, sizes)
        queue.add(key, rows)
        sent += [(key, row) for row in rows]
    assert len(queue) == len(sent) and queue.tokens == sum(row.size for _, row in sent)
    seen = []
    for key, batch in drained(queue, max_tokens, max_rows):
        assert len(batch) <= max_rows
        assert len(batch) == 1 or sum(row.size for row in batch) <= max_tokens
        seen += [(key, row) for row in batch]
    places = [sorted((key, id(row)) for key, row in rows) for rows in (seen, sent)]
    assert places[0] == places[1]
    assert queue.tokens == 0 and len(queue) == 0 and not queue


@given(st.lists(SIZES, min_size=1, max_size=10), st.integers(1, 1200))
def test_the_row_whose_turn_it_is_is_in_the_next_batch(requests, max_tokens):
    queue = TokenQueue()
    rows = [row for owner, sizes in enumerate(requests) for row in rows_of(owner, sizes)]
    for owner in range(len(requests)):
        queue.add("key", [row for row in rows if row.owner == owner])
    while queue:
        least = min(row.turn for row in rows)
        batch = queue.take(max_tokens, 100)[1]
        assert any(row.turn == least for row in batch)
        rows = [row for row in rows if row not in batch]


@given(SIZES, st.integers(600, 1200))
@example([5, 500, 20], 525)
def test_a_batch_has_the_lengths_around_that_row(sizes, max_tokens):
    """Nothing that stays behind is between two that go; what fits goes at once."""
    queue = queue_of(only=sizes)
    batch = [row.size for row in queue.take(max_tokens, 100)[1]]
    behind = [row.size for _, rows in drained(queue, 10**6, 100) for row in rows]
    assert not [size for size in behind if min(batch) < size < max(batch)]
    assert not behind or sum(sizes) > max_tokens


def test_a_long_row_is_not_passed_for_ever():
    """Short rows come without end, two a batch; the long one goes within the batches that were before it."""
    queue = queue_of(first=[10] * 6, long=[500])
    for number in range(20):
        queue.add("key", rows_of(number, [10, 10]))
        if any(row.owner == "long" for row in queue.take(20, 100)[1]):
            break
    assert number <= 3


def test_a_large_request_lets_small_ones_pass():
    """A thousand rows wait; a single one that comes later does not wait for all of them."""
    queue = queue_of(large=[10] * 1000)
    for _ in range(5):
        queue.take(100, 100)
    queue.add("key", rows_of("small", [10]))
    assert "small" in [row.owner for _ in range(2) for row in queue.take(100, 100)[1]]
    # And the large one is served on while as many small ones come as the model can answer.
    owners = []
    for number in range(50):
        queue.add("key", rows_of(number, [10] * 10))
        owners += [row.owner for row in queue.take(100, 100)[1]]
    assert 100 <= owners.count("large") <= 400


def test_models_take_turns():
    queue = TokenQueue()
    queue.add("a", rows_of(0, [10] * 100))
    queue.take(100, 100)
    queue.add("b", rows_of(1, [10] * 100))
    assert {queue.take(100, 100)[0] for _ in range(4)} == {"a", "b"}


@given(st.lists(SIZES, min_size=2, max_size=6), st.data())
def test_dropped_requests_leave_nothing(requests, data):
    queue = TokenQueue()
    for owner, sizes in enumerate(requests):
        queue.add(owner % 2, rows_of(owner, sizes))
    gone = data.draw(st.sets(st.integers(0, len(requests) - 1)))
    for owner in gone:
        queue.drop(owner)
    left = {row.owner for _, batch in drained(queue, 300, 5) for row in batch}
    assert left == set(range(len(requests))) - gone and queue.tokens == 0
