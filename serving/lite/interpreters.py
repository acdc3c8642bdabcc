"""Runs a LiteRT file on the cores of this process."""

import collections
import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import cores

# A row's inputs or outputs by name.
Row = dict[str, np.ndarray]
_all: "weakref.WeakSet[Interpreters]" = weakref.WeakSet()


class Interpreters:
    """Answers rows, each alone and without padding: a single one on all cores, several on one core each.

    A row's answer has the same bits in both cases. Thread-safe, also after a fork.

    content: the file, which all interpreters share. count: cores; 0: all that this process may use.
    """

    def __init__(self, content: bytes, count: int = 0):
        self._content, self.cores = content, count or cores()
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Forgets all interpreters; new ones are made when they are needed."""
        self._lock = threading.Lock()
        self._several: list[_Program] = []
        self._alone = self._several if self.cores == 1 else []

    def run(
        self, rows: Sequence[Row], outputs: Collection[str] = (), advance: Callable[[], Any] = lambda: None
    ) -> list[Row]:
        """Returns the outputs of each row; inputs and outputs are without the dimension of rows.

        `outputs` are the names of those to return; by default all. `advance` is called after each row.

        Raises UserError for an output with NaN or infinity.
        """
        if not rows:
            return []
        if len(rows) == 1:
            answer = self._programs(self._alone, 1, self.cores)[0](rows[0], outputs)
            advance()
            return [answer]
        answers: list[Row] = [{}] * len(rows)
        # The longest first, so that no core ends late; of equal lengths one after the other, since memory is planned
        # by length.
        order = sorted(range(len(rows)), key=lambda number: -len(rows[number]["input_ids"]))
        waiting, errors = collections.deque(order), list[BaseException]()

        def work(program: _Program) -> None:
            try:
                with contextlib.suppress(IndexError):
                    while True:
                        number = waiting.popleft()
                        answers[number] = program(rows[number], outputs)
                        advance()
            except BaseException as error:
                errors.append(error)
                waiting.clear()

        count = min(self.cores, len(rows))
        first, *others = self._programs(self._several, count, 1)[:count]
        threads = [threading.Thread(target=work, args=(program,)) for program in others]
        for thread in threads:
            thread.start()
        work(first)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return answers

    def _programs(self, programs: list["_Program"], count: int, threads: int) -> list["_Program"]:
        with self._lock:
            while len(programs) < count:
                programs.append(_Program(self._content, threads))
        return programs

    def leave(self) -> None:
        """Begins anew in a child process: the parent's threads, and perhaps their locks, are not there."""
        for program in (*self._alone, *self._several):
            # Whoever frees an interpreter waits for its threads.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(program.interpreter))
        self.begin()


class _Program:
    def __init__(self, content: bytes, threads: int):
        try:
            self.interpreter = Interpreter(model_content=content, num_threads=threads)
            # Some kernels wake a thread on the core of its caller, who waits for it: 16 tokens took 3 times as long.
            cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
            is_apart = 1 < threads == len(cores)
            self._core = {cores[0]} if is_apart else set[int]()
            with _silence(), _kept_to(set(cores[1:]) if is_apart else set()):
                self.interpreter.allocate_tensors()
            runner = self.interpreter.get_signature_runner()
        except ValueError as error:
            raise UserError(f"this version of ai-edge-litert cannot read the model: {error}") from error
        self._inputs = {name: detail["index"] for name, detail in runner.get_input_details().items()}
        self._outputs = {name: detail["index"] for name, detail in runner.get_output_details().items()}
        self._lock, self._shapes = threading.Lock(), dict[str, tuple[int, ...]]()

    def __call__(self, row: Row, outputs: Collection[str]) -> Row:
        with self._lock, _kept_to(self._core):
            shapes = {name: values.shape for name, values in row.items()}
            if shapes != self._shapes:
                self._shapes = {}
                for name, shape in shapes.items():
                    self.interpreter.resize_tensor_input(self._inputs[name], [1, *shape])
                self.interpreter.allocate_tensors()
                self._shapes = shapes
            for name, values in row.items():
                self.interpreter.set_tensor(self._inputs[name], values[np.newaxis])
            self.interpreter.invoke()
            answer = {name: self.interpreter.get_tensor(self._outputs[name])[0] for name in outputs or self._outputs}
        for name, values in answer.items():
            if not np.isfinite(values).all():
                raise UserError(f"the model's {name} holds NaN or infinity; check its weights, and export it again")
        return answer


@contextlib.contextmanager
def _kept_to(cores: set[int]) -> Iterator[None]:
    """Keeps this thread and those that it starts to these cores; to none: leaves them."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    # What forbids it, such as a container's rules, costs only speed.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)


_said, _saying = False, threading.Lock()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drops the line that LiteRT writes to stderr when the first interpreter of a process begins."""
    global _said
    if _said:
        yield
        return
    # Of two that begin at once either may write it.
    with _saying:
        with contextlib.nullcontext() if _said else _without_line():
            yield
        _said = True


@contextlib.contextmanager
def _without_line() -> Iterator[None]:
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (AttributeError, OSError):  # There is no stderr.
        yield
        return
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        # What other threads wrote meanwhile is written again.
        with contextlib.suppress(OSError, AttributeError):  # Python 3.11 has no set_blocking on Windows.
            os.set_blocking(read, False)
        with contextlib.suppress(OSError):
            lines = os.read(read, 2**16).splitlines(keepends=True)
            os.write(2, b"".join(line for line in lines if not line.startswith(b"INFO: Created TensorFlow Lite")))
        os.close(read)


def _begin_in_child() -> None:
    global _saying
    _saying = threading.Lock()
    for interpreters in list(_all):
        interpreters.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
