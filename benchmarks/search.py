"""Times searches in many vectors and compares what they find with exact search.

python -m benchmarks.search --output_dir=search                      # 100,000 synthetic vectors
python -m benchmarks.search --vectors=vectors.npy --output_dir=search

Synthetic vectors lie around random centres, as those of texts lie around topics; queries are drawn likewise. Of vectors
in a file the last --queries are the queries. Graphs are built once and kept in the output folder; a run of all kinds
times one query at a time, after a few that warm up.
"""

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from albert_tf.index import Index
from benchmarks.machine import machine_line
from tfrecords.base import files
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

_CENTRES, _SPREAD, _WARM_UP = 2000, 0.8, 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(CheckedSettings):
    """The vectors, and what is measured of them."""

    vectors: str = setting("", help="float32 vectors of length 1, .npy; empty: synthetic ones")
    number: int = setting(100_000, help="synthetic vectors", at_least=100)
    dimensions: int = setting(384, help="numbers of a synthetic vector", at_least=8)
    queries: int = setting(200, help="number of queries", at_least=1)
    top: int = setting(10, help="texts that a query asks for", at_least=1)
    kinds: str = setting("float32,int8,binary", help="kinds of vectors, comma-separated")
    output_dir: str = setting(help="folder for the graphs")


def synthetic(count: int, dimensions: int) -> np.ndarray:
    """Returns vectors of length 1 around random centres: float32 [count, dimensions]."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(_CENTRES, dimensions)).astype("float32")
    vectors = centres[rng.integers(0, _CENTRES, count)]
    vectors += _SPREAD * rng.normal(size=vectors.shape).astype("float32")
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main(settings: SearchSettings) -> None:
    """Measures every kind and prints a line for each."""
    if settings.vectors:
        vectors = np.load(settings.vectors)
    else:
        vectors = synthetic(settings.number + settings.queries, settings.dimensions)
    vectors, queries = vectors[: -settings.queries], vectors[-settings.queries :]
    folder, numbers = files.make_output_dir(settings.output_dir), [str(n) for n in range(len(vectors))]
    print(f"{len(vectors):,} vectors of {vectors.shape[1]}, {len(queries)} queries; {machine_line()}")
    loaded, expected = SimpleNamespace(task={}), None
    for kind in settings.kinds.split(","):
        began, path = time.perf_counter(), folder / f"{kind}.usearch"
        index = Index(loaded, numbers, vectors, kind, _graph(path), "benchmark")
        if index.graph is not None and not path.is_file():
            index.graph.save(str(path))
        built = time.perf_counter() - began
        if expected is None:
            expected = _measure(index, queries, settings.top, exact=True, said="exact")
        _measure(index, queries, settings.top, expected=expected, said=f"{kind}, ready in {built:.1f} s")


def _graph(path: Path):
    if not path.is_file():
        return None
    from usearch.index import Index as Graph

    graph = Graph.restore(str(path))
    graph.expansion_search = 256
    return graph


def _measure(index: Index, queries: np.ndarray, top: int, said: str, expected=None, exact: bool = False) -> np.ndarray:
    found, times = [], []
    for query in [*queries[:_WARM_UP], *queries]:
        began = time.perf_counter()
        _, numbers = index.nearest(query[None], top, exact)
        times.append(1000 * (time.perf_counter() - began))
        found.append(numbers[0])
    found, times = np.array(found[_WARM_UP:]), np.array(times[_WARM_UP:])
    line = f"{said}: median {np.median(times):.2f} ms, p95 {np.percentile(times, 95):.2f} ms"
    if expected is not None:
        recall = np.mean([len({*mine} & {*theirs}) / top for mine, theirs in zip(found, expected)])
        line += f", recall@{top} {recall:.4f}"
    print(line, flush=True)
    return found


if __name__ == "__main__":
    run_main(main, SearchSettings)
