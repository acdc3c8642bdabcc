"""The life cycle of model versions.

An old version is unloaded after the new one is available and its last request has ended.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from serving.model_server import telemetry
from serving.model_server.status import StatusError, as_status_error, not_found
from serving.wire.protos import SignatureDef

# The maximum number of different output combinations. Clients choose them, and TensorFlow keeps a pruned graph (some
# 150 KB) for each until the model is unloaded.
_MAX_FETCH_SETS = 64


class Model(Protocol):
    """A loaded model, or a batching queue before it; feeds and fetches are the names of its signatures' tensors."""

    signatures: Mapping[str, SignatureDef]

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list: ...

    def close(self) -> None: ...


class Servable:
    """A version of a model.

    `check_method`: whether to refuse signatures whose method is not the API's.
    """

    def __init__(self, name: str, version: int, model: Model, check_method: bool = False):
        self.name = name
        self.version = version
        self.signatures = model.signatures
        self.check_method = check_method
        self.close = model.close
        self._model = model
        self._fetch_sets: set[frozenset[str]] = set()

    def run(
        self, api: str, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None
    ) -> list[np.ndarray]:
        """Runs the model once for `api` ("Predict", ...)."""
        begin = time.perf_counter()
        # Sorted and without repetition: TensorFlow and the batching take another order for another combination.
        names = sorted(self._fetch_set(frozenset(feeds), frozenset(fetches)))
        outputs = dict(zip(names, self._model.run(feeds, names, timeout), strict=True))
        telemetry.RUNTIME_LATENCY.labels(self.name, api, "TF1").observe((time.perf_counter() - begin) * 1e6)
        return [outputs[name] for name in fetches]

    def _fetch_set(self, feeds: frozenset[str], fetches: frozenset[str]) -> frozenset[str]:
        # Returns `fetches`, or after too many combinations all outputs of their signature.
        if fetches not in self._fetch_sets:
            if len(self._fetch_sets) >= _MAX_FETCH_SETS:
                return next(filter(fetches.issubset, self._outputs_of(feeds)), fetches)
            self._fetch_sets.add(fetches)
        return fetches

    def _outputs_of(self, feeds: frozenset[str]) -> Iterator[frozenset[str]]:
        for signature in self.signatures.values():
            if feeds == {info.name for info in signature.inputs.values()}:
                yield frozenset(info.name for info in signature.outputs.values())


_LOG = logging.getLogger(__name__)
# Numbers of ModelVersionStatus.State.
START, LOADING, AVAILABLE, UNLOADING, END = 10, 20, 30, 40, 50


class Version:
    """One version of a model, guarded by the manager's lock."""

    def __init__(self, name: str, number: int, path: str):
        self.name, self.number, self.path = name, number, path
        self.files = files_of(path)
        self.state = START
        self.error: StatusError | None = None
        self.aspired = True
        self.servable: Servable | None = None
        self.references = 0

    def __str__(self) -> str:
        return f"{{name: {self.name} version: {self.number}}}"


class Manager:
    """Loads and unloads versions without a gap in service."""

    def __init__(
        self,
        load: Callable[[str, int, str], Servable],
        max_load_retries: int = 5,
        retry_interval: float = 60.0,
        load_threads: int = 1,
        unload_threads: int = 1,
        initial_load_threads: int = 4,
    ):
        """`retry_interval` is in seconds."""
        self._load = load
        self._max_load_retries = max_load_retries
        self._retry_interval = retry_interval
        self._changed = threading.Condition()
        self._versions: dict[str, dict[int, Version]] = {}
        self._aspired: dict[str, dict[int, str]] = {}
        self._closing = False
        self._initial_pool = ThreadPoolExecutor(initial_load_threads, "initial-load")
        self._load_pool = ThreadPoolExecutor(load_threads, "load")
        self._unload_pool = ThreadPoolExecutor(unload_threads, "unload")

    def aspire(self, name: str, versions: Mapping[int, str]) -> None:
        """Sets which versions of a model to serve: folders by number."""
        with self._changed:
            self._aspired[name] = dict(versions)
            self._update(name)

    @contextlib.contextmanager
    def use(self, name: str, number: int | None = None) -> Iterator[Version]:
        """Yields an available version, `number` or the latest, which stays loaded within the context."""
        with self._changed:
            version = self._find_available(name, number)
            version.references += 1
        try:
            yield version
        finally:
            with self._changed:
                version.references -= 1
                if version.references == 0 and version.state == UNLOADING:
                    self._changed.notify_all()

    def available(self, name: str) -> list[int]:
        with self._changed:
            return [n for n, version in self._versions.get(name, {}).items() if version.state == AVAILABLE]

    def states(self, name: str) -> list[tuple[int, int, StatusError | None]]:
        """Returns (version, state, error) of every version ever requested, newest first."""
        with self._changed:
            versions = self._versions.get(name, {}).values()
            return sorted(((v.number, v.state, v.error) for v in versions), key=lambda v: v[0], reverse=True)

    def wait_until_available(self, names: Iterable[str], stop: Callable[[], bool] = lambda: False) -> list[Version]:
        """Waits until each model has a version that is available or failed; returns each failed model's newest version.

        The wait also ends when `stop`, which is called often, returns True or raises.
        """
        for name in names:
            self._wait_while(lambda name=name: not self._decided(name), stop)
        with self._changed:
            newest = [max(decided, key=lambda v: v.number) for name in names if (decided := self._decided(name))]
        return [version for version in newest if version.state == END]

    def wait_until_settled(self, name: str, numbers: Iterable[int], stop: Callable[[], bool]) -> bool:
        """Waits while a requested version among `numbers` loads; returns False if `stop` ended the wait."""
        return self._wait_while(
            lambda: any(v.number in numbers and v.state in (START, LOADING) for v in self._wanted(name)), stop
        )

    def _wait_while(self, condition: Callable[[], bool], stop: Callable[[], bool]) -> bool:
        with self._changed:
            while condition():
                if self._closing or stop():
                    return False
                self._changed.wait(0.2)
        return True

    def _wanted(self, name: str) -> list[Version]:
        return [version for version in self._versions.get(name, {}).values() if version.aspired]

    def _decided(self, name: str) -> list[Version]:
        return [version for version in self._wanted(name) if version.state in (AVAILABLE, END)]

    # Later loads use the small pool, so that a swap of versions leaves the processors to requests.
    def end_initial_load(self) -> None:
        with self._changed:
            initial, self._initial_pool = self._initial_pool, None
        if initial is not None:
            initial.shutdown(wait=False)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for pool in (self._initial_pool, self._load_pool):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        with self._changed:
            for name in self._versions:
                self._aspired[name] = {}
                self._update(name)
        self._unload_pool.shutdown(wait=True)

    def _find_available(self, name: str, number: int | None) -> Version:
        versions = self._versions.get(name, {})
        if number is not None:
            version = versions.get(number)
            if version is None or version.state != AVAILABLE:
                raise not_found(f"Servable not found for request: Specific({name}, {number})")
            return version
        available = [version for version in versions.values() if version.state == AVAILABLE]
        if not available:
            raise not_found(f"Servable not found for request: Latest({name})")
        return max(available, key=lambda version: version.number)

    def _update(self, name: str) -> None:
        versions = self._versions.setdefault(name, {})
        wanted = self._aspired.get(name, {})
        for version in list(versions.values()):
            aspired = version.number in wanted
            if aspired and not version.aspired and version.state == END:
                del versions[version.number]
            version.aspired = aspired
            if version.state == START and not aspired:
                version.state = END
        for number in sorted(wanted, reverse=True):
            self._start_load(versions, name, number, wanted[number])
        for version in _unloadable(versions.values()):
            version.state = UNLOADING
            self._unload_pool.submit(self._run_unload, version)
        self._changed.notify_all()

    def _start_load(self, versions: dict[int, Version], name: str, number: int, path: str) -> None:
        present = versions.get(number)
        if present and present.state in (START, LOADING):
            # The next attempt reads the path from there.
            present.path = path
        # A version that failed stays failed until its folder changes: it may have been copied in part.
        if self._closing or (present and (present.state != END or (present.error and not _is_other(present, path)))):
            return
        versions[number] = Version(name, number, path)
        pool = self._initial_pool or self._load_pool
        pool.submit(self._run_load, versions[number])

    def _run_load(self, version: Version, retries: int = 0) -> None:
        with self._changed:
            if version.state == END:
                return
            version.state = LOADING
            path, version.files = version.path, files_of(version.path)
            self._changed.notify_all()
        servable, error = None, None
        try:
            servable = self._load(version.name, version.number, path)
        except Exception as failure:
            error = as_status_error(failure)
            _LOG.error("Loading servable: %s failed: %s", version, error)
        with self._changed:
            if error and retries < self._max_load_retries:
                # On a thread of its own: the pool's are for other versions in the meantime.
                arguments = (version, path, retries + 1, error)
                threading.Thread(target=self._retry_after_pause, args=arguments, name="load-retry", daemon=True).start()
            else:
                self._finish_load(version, servable, error)

    def _retry_after_pause(self, version: Version, path: str, retries: int, error: StatusError) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing or not version.aspired or _is_other(version, path), self._retry_interval
            )
            if version.aspired and not self._closing:
                (self._initial_pool or self._load_pool).submit(self._run_load, version, retries)
            else:
                self._finish_load(version, None, error)

    def _finish_load(self, version: Version, servable: Servable | None, error: StatusError | None) -> None:
        version.servable, version.error = servable, error
        version.state = END if servable is None else AVAILABLE
        if servable is not None:
            _LOG.info("Successfully loaded servable version %s", version)
        self._update(version.name)

    def _run_unload(self, version: Version) -> None:
        with self._changed:
            self._changed.wait_for(lambda: version.references == 0)
        try:
            version.servable.close()
        except Exception:
            _LOG.exception("Unloading servable: %s failed", version)
        with self._changed:
            version.servable = None
            version.state = END
            _LOG.info("Done unloading servable version %s", version)
            self._update(version.name)


def files_of(path: str) -> set[tuple[str, int, int]]:
    """Returns each file's name, size and time."""
    found = set()
    for folder, _, names in os.walk(path):
        for name in names:
            # A file may have gone since.
            with contextlib.suppress(OSError):
                state = os.stat(os.path.join(folder, name))
                found.add((os.path.join(folder, name), state.st_size, state.st_mtime_ns))
    return found


def _is_other(version: Version, path: str) -> bool:
    return version.path != path or version.files != files_of(path)


# Returns the versions to unload, like TF Serving's AvailabilityPreservingPolicy. The highest stays while no version to
# serve is available.
def _unloadable(versions: Iterable[Version]) -> list[Version]:
    versions = list(versions)
    unwanted = sorted((v for v in versions if v.state == AVAILABLE and not v.aspired), key=lambda v: v.number)
    if any(v.aspired and v.state == AVAILABLE for v in versions) or not any(v.aspired for v in versions):
        return unwanted
    return unwanted[:-1]
