"""Searches texts by their vectors.

Up to EXACT_UP_TO float32 vectors are compared exactly. With more, or with int8 vectors, a search uses usearch's graph
and rescores the best texts with float32 vectors, which a saved index keeps on disk.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf.choices import VECTORS
from tfrecords.answers.numbers import similarity, unit
from tfrecords.answers.texts import TextModel
from tfrecords.base import files
from tfrecords.base.columns import is_one, strings
from tfrecords.base.errors import UserError, check_counts, check_libraries, refuse
from tfrecords.base.script import progress_bar

ABOUT = "index.json"
_SAID = {"model", "source", "texts", "vectors", "has_graph", "files_sha256"}


def about_index(folder: Path) -> dict[str, Any]:
    """Returns the description of a finished index; {} if there is none."""
    path = folder / ABOUT
    about = files.read_json(path) if path.is_file() else {}
    if not isinstance(about, dict) or (about and not about.keys() >= _SAID):
        raise UserError(f"'{path}' describes no index; remove it, and build the index anew")
    return about


def saved_source(folder: str) -> str:
    """Returns the name of the model that built a saved index; raises UserError if unknown."""
    if not (about := about_index(Path(folder))):
        raise UserError(f"--index_dir={folder} holds no finished index; build it by --model=... and --text_file=...")
    if not about["source"]:
        raise UserError(f"--index_dir={folder} was built by a model in memory; save that, and give it by --model=...")
    return about["source"]


# Up to here a product with all vectors takes a few milliseconds.
EXACT_UP_TO = 20_000
# usearch's names of similarities.
_METRICS = {"cosine": "cos", "dot": "ip", "euclidean": "l2sq"}
# Texts that are rescored for each one asked for.
_RESCORED = {"float32": 2, "int8": 4}
# Nodes of the graph that a search keeps.
_EXPANSION = 256
# Texts that the graph takes at a time, and numbers in memory at a time.
_PART, _BLOCK = 4096, 2**26
# Vectors that are equal in steps of this part of 1 are one entry of the graph.
_STEPS = 1e4
# Texts whose nearest a new graph is asked for, how many of these, and the recall below which it warns.
_SAMPLE, _TOP, _LEAST_RECALL = 200, 10, 0.9
_FILES = {"texts": "texts.jsonl", "vectors": "vectors.npy", "graph": "graph.usearch"}


class Hit(NamedTuple):
    """A text that a search found, with its number in the index, its similarity and what the index keeps of its row."""

    number: int
    score: float
    text: str
    kept: Mapping[str, Any] = {}


class Index:
    """Texts with their vectors; `Loaded.index` makes one, and `open_index` opens a saved one.

    Args:
        vectors: float32 [texts, dimensions]; they have length 1 if the model compares by cosine.
        kind: "float32" or "int8".
        graph: a usearch index with one entry for equal vectors; None: built if needed.
        model: the identity of the model that made the vectors; empty: computed from `loaded`.
        kept: for each text, columns of its row such as an id; empty: none.

    Raises:
        UserError: the kind is unknown or does not fit the model's similarity, or usearch is missing.
    """

    def __init__(
        self, loaded: TextModel, texts: Sequence[str], vectors: np.ndarray, kind: str = "float32", graph: Any = None,
        model: str = "", kept: Sequence[Mapping[str, Any]] = (),
    ):  # fmt: skip
        needs_graph = _needs_graph(loaded, len(texts), kind)
        self.loaded, self.texts, self.vectors, self.kind = loaded, list(texts), vectors, kind
        self.similarity = _compared_by(loaded)
        self.model, self.kept = model or loaded.identity(), kept
        self._scale = 127 / max(float(np.abs(vectors).max(initial=0)), 1e-12) if kind == "int8" else 1.0
        self.graph, self._alike = graph, {}
        if needs_graph or graph is not None:
            firsts, self._alike = _equal(vectors, self._scale if kind == "int8" else _STEPS)
            if graph is None:
                self.graph = self._build(firsts)
                self._say_recall()

    def search(self, queries: Any, top: int = 10, exact: bool = False) -> list:
        """Returns for each query a list of the `top` best Hits, the best first; for one string, one list.

        The model's prompt for queries is prepended. `exact` compares queries with all float32 vectors.
        """
        asked = [queries] if is_one(queries) else strings(queries, "queries")
        if not asked:
            return []
        vectors, found = _encoded(self.loaded.encode_query, self.similarity, asked), []
        scores, numbers = self.nearest(vectors, top, exact)
        for row, places in zip(scores.tolist(), numbers.tolist()):
            hits = [(place, score, self.texts[place]) for score, place in zip(row, places) if place >= 0]
            found.append([Hit(*hit, self.kept[hit[0]] if self.kept else {}) for hit in hits])
        return found[0] if is_one(queries) else found

    def nearest(self, vectors: np.ndarray, top: int = 10, exact: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns the similarities and the numbers of each vector's nearest texts, both [vectors, top], best first."""
        check_counts(top=top)
        vectors = np.asarray(vectors, "float32")
        refuse({
            f"vectors of shape {vectors.shape} do not fit the index's {self.vectors.shape[1]} numbers":
                vectors.ndim != 2 or vectors.shape[1] != self.vectors.shape[1],
            "vectors of queries have numbers that are not finite; check the model's weights":
                not np.isfinite(vectors).all(),
        })  # fmt: skip
        if self.similarity == "cosine":
            vectors = unit(vectors)
        top = min(top, len(self.texts))
        if exact or self.graph is None:
            return exact_nearest(vectors, self.vectors, top, self._compared)
        scores = np.full((len(vectors), top), -np.inf, "float32")
        numbers = np.full((len(vectors), top), -1, "int64")
        for row, vector in enumerate(vectors):
            count = min(top * _RESCORED[self.kind], len(self.texts))
            entries = self.graph.search(self._quantized(vector), count).keys.astype("int64")
            chosen = np.unique(np.concatenate([self._alike.get(entry, [entry]) for entry in entries.tolist()]))
            compared = self._compared(vector[None], np.asarray(self.vectors[chosen]))[0]
            order = np.argsort(-compared, kind="stable")[:top]
            scores[row, : len(order)], numbers[row, : len(order)] = compared[order], chosen[order]
        return scores, numbers

    def _compared(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        # The cosine of vectors of length 1 is their product.
        return similarity("dot" if self.similarity == "cosine" else self.similarity, first, second)

    def _quantized(self, vectors: np.ndarray) -> np.ndarray:
        if self.kind != "int8":
            return vectors
        return np.clip(np.round(vectors * self._scale), -127, 127).astype("int8")

    def _build(self, numbers: np.ndarray) -> Any:
        graph = self._empty_graph()
        # Similar texts often follow one another, and would be neighbours of one another only.
        numbers = np.random.default_rng(0).permutation(numbers)
        for start in progress_bar(range(0, len(numbers), _PART), desc="building the graph", unit="part"):
            part = numbers[start : start + _PART]
            graph.add(part, self._quantized(np.asarray(self.vectors[part])))
        return graph

    def _say_recall(self) -> None:
        # Measured by similarities, since texts with equal ones may take each other's place.
        sample = np.random.default_rng(1).permutation(len(self.texts))[:_SAMPLE]
        asked, top = np.asarray(self.vectors[sample]), min(_TOP, len(self.texts))
        # Texts find themselves; a query lies between texts, where a crowd of equal ones hides the others.
        queries = np.concatenate([asked, (asked + np.roll(asked, 1, axis=0)) / 2])
        exact, found = (self.nearest(queries, top, exact)[0] for exact in (True, False))
        recall = float((found >= exact[:, -1:] - 1e-5).mean())
        warning = "warning: " * (recall < _LEAST_RECALL)
        of_sample = f"of the {top} nearest texts of {len(asked)} sampled ones and points between"
        print(f"{warning}the graph finds {recall:.3f} {of_sample}", file=sys.stderr)

    def _empty_graph(self) -> Any:
        kind = "i8" if self.kind == "int8" else "f32"
        return _graph_class()(
            ndim=self.vectors.shape[1], metric=_METRICS[self.similarity], dtype=kind, expansion_search=_EXPANSION
        )

    def save(self, folder: Any) -> Path:
        """Writes a folder that `open_index` reads, and replaces an index in it."""
        folder = index_folder(folder)
        about = folder / ABOUT
        # Without this file, the folder does not count as an index.
        about.unlink(missing_ok=True)
        with files.replacing(folder / _FILES["texts"]) as path:
            lines = list(zip(self.texts, self.kept)) if self.kept else self.texts
            written = (json.dumps(line, ensure_ascii=False, default=str) + "\n" for line in lines)
            path.write_text("".join(written), "utf-8")
        place = (folder / _FILES["vectors"]).resolve()
        if not (isinstance(self.vectors, np.memmap) and Path(self.vectors.filename).resolve() == place):
            with files.replacing(folder / _FILES["vectors"]) as path, open(path, "wb") as file:
                np.save(file, self.vectors)
        if self.graph is not None:
            with files.replacing(folder / _FILES["graph"]) as path:
                self.graph.save(str(path))
        kinds = {"vectors": self.kind, "similarity": self.similarity, "has_graph": self.graph is not None}
        source = {"model": self.model, "source": self.loaded.source, "texts": len(self.texts)}
        digests = {"files_sha256": _digests(folder, self.graph is not None)}
        files.write_json(about, {**source, **kinds, **digests})
        return folder


def _equal(vectors: np.ndarray, scale: float) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Returns the first number of each vector rounded to 1 / scale, and all numbers of those there several times."""
    keys = np.empty((len(vectors), 2), "uint64")
    for start in range(0, len(vectors), _PART):
        for number, vector in enumerate(np.round(vectors[start : start + _PART] * scale).astype("int32"), start):
            keys[number] = np.frombuffer(hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), "uint64")
    _, firsts, groups, counts = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(groups.ravel(), kind="stable"), np.cumsum(counts)[:-1])
    return firsts, {int(first): numbers for first, numbers in zip(firsts, members) if len(numbers) > 1}


def exact_nearest(
    queries: np.ndarray, vectors: np.ndarray, top: int, compare: Callable[[Any, Any], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each query's highest similarities and the numbers of these vectors, both [queries, top]."""
    scores, numbers = [np.zeros((0, top), "float32")], [np.zeros((0, top), "int64")]
    size = max(1, _BLOCK // max(len(vectors), 1))
    for start in range(0, len(queries), size):
        compared = compare(queries[start : start + size], vectors)
        best = np.sort(np.argpartition(-compared, top - 1, axis=1)[:, :top], axis=1)
        values = np.take_along_axis(compared, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        scores.append(np.take_along_axis(values, order, axis=1))
        numbers.append(np.take_along_axis(best, order, axis=1))
    return np.concatenate(scores), np.concatenate(numbers)


def _digests(folder: Path, has_graph: bool) -> dict[str, str]:
    names = [name for part, name in _FILES.items() if has_graph or part != "graph"]
    return {name: files.sha256(folder / name) for name in names}


def _compared_by(loaded: TextModel) -> str:
    return loaded.task.get("similarity_fn_name", "cosine")


# Called before texts are encoded, which may take hours.
def _needs_graph(loaded: TextModel, count: int, kind: str) -> bool:
    name = _compared_by(loaded)
    if kind not in VECTORS:
        raise UserError(f"vectors '{kind}' are unknown; choose one of {', '.join(VECTORS)}")
    if kind == "float32" and count <= EXACT_UP_TO:
        return False
    if name not in _METRICS:
        raise UserError(f"usearch knows no {name}; take float32 and at most {EXACT_UP_TO} texts")
    check_libraries(f"an index of {count:,} {kind} vectors", "search", usearch="usearch")
    return True


def make_index(
    loaded: TextModel, texts: Any, kind: str, batch_size: int, show_progress: bool, kept: Sequence[Mapping] = ()
) -> Index:
    """Implements `Loaded.index`; `kept` are columns of the texts' rows."""
    texts = strings(texts, "texts")
    if not texts:
        raise UserError("there are no texts to search in; give some")
    _needs_graph(loaded, len(texts), kind)
    name = _compared_by(loaded)
    options = {"batch_size": batch_size, "show_progress": show_progress}
    return Index(loaded, texts, _encoded(loaded.encode_document, name, texts, **options), kind, kept=kept)


def index_folder(folder: Any) -> Path:
    """Makes a folder for an index; raises UserError if it holds files that no index has."""
    folder, own = files.make_output_dir(folder), {*_FILES.values(), ABOUT}
    others = sorted(path.name for path in folder.iterdir() if path.name not in own and not path.name.startswith("."))
    if others:
        raise UserError(f"'{folder}' holds other files, such as '{others[0]}'; choose an empty folder for the index")
    return folder


def _graph_class() -> Any:
    # usearch is of an optional extra.
    from usearch.index import Index as Graph

    return Graph


def open_index(folder: Any, loaded: TextModel) -> Index:
    """Opens a saved index; `loaded` is the model that built the index, or its distilled student.

    Raises:
        UserError: there is no index, it is damaged, or it belongs to another model.
    """
    folder = Path(folder)
    about = about_index(folder)
    if not about:
        raise UserError(f"'{folder}' holds no finished index; build one: python -m albert_tf.search --text_file=...")
    if about["model"] not in (loaded.identity(), loaded.task.get("distilled_from")):
        raise UserError(
            f"'{folder}' was built by '{about['source']}', and '{loaded.source}' is another model, not distilled from "
            "it: their vectors cannot be compared; ask with that model, or build the index anew"
        )
    try:
        is_whole = _digests(folder, about["has_graph"]) == about["files_sha256"]
    except OSError:
        is_whole = False
    if not is_whole:
        raise UserError(f"the index '{folder}' is damaged: its files are not those that were written; build it anew")
    with open(folder / _FILES["texts"], encoding="utf-8") as file:
        texts, kept = [json.loads(line) for line in file], []
    if texts and isinstance(texts[0], list):
        texts, kept = map(list, zip(*texts))
    vectors, graph = np.load(folder / _FILES["vectors"], mmap_mode="r", allow_pickle=False), None
    if about["has_graph"]:
        check_libraries(f"the index '{folder}'", "search", usearch="usearch")
        graph = _graph_class().restore(str(folder / _FILES["graph"]))
        graph.expansion_search = _EXPANSION
    elif about["vectors"] == "float32":
        vectors = np.array(vectors)
    return Index(loaded, texts, vectors, about["vectors"], graph, about["model"], kept)


def key_of(model: str, texts: Sequence[str]) -> str:
    """Returns a SHA-256 of texts and of `model`, a string that identifies their encoder."""
    state = hashlib.sha256(model.encode())
    for text in texts:
        state.update(text.encode() + b"\0")
    return state.hexdigest()


def _encoded(encode: Any, similarity: str, texts: Sequence[str], **options: Any) -> np.ndarray:
    return encode(texts, normalize=similarity == "cosine", **options)
