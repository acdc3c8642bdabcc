"""Judges embedders on the same sets: beside the first one, with its documents, and beside sentence-transformers.

python -m benchmarks.embedding_quality --data_dir=sets --models=minilm,small,tiny --output_dir=quality
python -m benchmarks.embedding_quality --data_dir=sets --models=minilm --peer_python=bin/python --output_dir=out

Each model's figures are divided by the first one's. Of retrieval each model is also asked for queries alone, with the
first one's documents (asymmetric); the intervals of these ratios, 95 %, are of a paired bootstrap over the queries.
With --peer_python, an environment with sentence-transformers, the first model's folder is also read by that. Vectors
are kept in the output folder, so that an interrupted run goes on.
"""

import dataclasses
import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.embeddings.index import identity
from albert_tf.loading.load import load
from albert_tf.suites.scores import measure, ranked
from albert_tf.suites.sets import Ranking, find_sets
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar, run_main
from tfrecords.base.settings import CheckedSettings, setting

_PART, _RESAMPLES = 2048, 2000
_PEER = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
texts, target = json.load(open(sys.argv[2])), sys.argv[3]
np.save(target, SentenceTransformer(sys.argv[1], device="cpu").encode(texts, batch_size=64))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualitySettings(CheckedSettings):
    """What is judged, by which sets."""

    data_dir: str = setting(help="folders of sets as run_evaluation --suite=embeddings reads them, comma-separated")
    models: str = setting(help="model folders, comma-separated; the others are compared with the first one")
    peer_python: str = setting("", help="Python with sentence-transformers, which also reads the first model")
    output_dir: str = setting(help="folder for vectors and quality.json")


class Kept:
    """An embedder that keeps its vectors in files."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder

    def __getattr__(self, role: str) -> Any:
        if not role.startswith("encode"):
            raise AttributeError(role)

        def encode(texts: Sequence[str]) -> np.ndarray:
            key = hashlib.sha256("\0".join([self.name, role, *texts]).encode()).hexdigest()[:24]
            path = self.folder / f"{key}.npy"
            if not path.is_file():
                with files.replacing(path) as temporary, open(temporary, "wb") as file:
                    np.save(file, self.vectors(role, texts))
            return np.load(path)

        return encode

    def similarity(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Returns cosines."""
        first, second = (one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (first, second))
        return first @ second.T

    def vectors(self, role: str, texts: Sequence[str]) -> np.ndarray:
        """Computes the vectors of texts as queries, documents or neither."""
        raise NotImplementedError


class Ours(Kept):
    """A model of this library."""

    def __init__(self, path: str, folder: Path):
        self.loaded = load(path)
        super().__init__(identity(self.loaded), folder)

    def vectors(self, role: str, texts: Sequence[str]) -> np.ndarray:
        parts = [texts[start : start + _PART] for start in range(0, len(texts), _PART)]
        encode = getattr(self.loaded, role)
        return np.concatenate([encode(part, batch_size=64) for part in progress_bar(parts, desc=role, unit="part")])


class Theirs(Kept):
    """The same folder, read by sentence-transformers in a process of its own."""

    def __init__(self, python: str, path: str, folder: Path):
        self.python, self.path = python, path
        super().__init__(f"sentence-transformers {path}", folder)

    def vectors(self, role: str, texts: Sequence[str]) -> np.ndarray:
        asked, answer = self.folder / "texts.json", self.folder / "answer.npy"
        asked.write_text(json.dumps(list(texts)))
        subprocess.run([self.python, "-c", _PEER, self.path, str(asked), str(answer)], check=True)
        return np.load(answer)


class Asymmetric(Kept):
    """Queries by one model, documents by another."""

    def __init__(self, queries: Kept, documents: Kept):
        self.encode_query, self.encode_document = queries.encode_query, documents.encode_document


def main(settings: QualitySettings) -> None:
    """Judges all models on all sets and prints a line for each."""
    sets, folder = find_sets(settings.data_dir), files.make_output_dir(settings.output_dir)
    paths = settings.models.split(",")
    if missing := [path for path in paths if not Path(path).exists()]:
        raise UserError(f"--models={settings.models}: '{missing[0]}' does not exist")
    models: dict[str, Kept] = {path: Ours(path, folder) for path in paths}
    if settings.peer_python:
        models[f"{paths[0]} (sentence-transformers)"] = Theirs(settings.peer_python, paths[0], folder)
    whole, report = models[paths[0]], {name: dict[str, Any]() for name in models}
    for data in sets:
        for name, model in models.items():
            for kind, figures in measure(data, model).items():
                report[name][f"{data.name}: {kind}"] = figures
        if isinstance(data, Ranking):
            _ratios(data, models, whole, report)
    files.write_json(folder / "quality.json", report)
    for name in models:
        for task, figures in report[name].items():
            measure_name, value = next(iter(figures.items()))
            first = next(iter(report[paths[0]][task].values())) if task in report[paths[0]] else value
            interval = f"  95 %: {figures['ratio'][0]:.3f} to {figures['ratio'][1]:.3f}" if "ratio" in figures else ""
            print(f"{name}  {task}  {measure_name} {100 * value:.2f}  {value / first:.3f} of the first{interval}")


def _ratios(data: Ranking, models: dict[str, Kept], whole: Kept, report: dict[str, dict[str, Any]]) -> None:
    """Adds asymmetric figures, and the intervals of ratios to the first model."""
    measure_name, first = next(iter(ranked(data, whole).items()))
    draws = np.random.default_rng(0).integers(0, len(first), (_RESAMPLES, len(first)))
    for name, model in models.items():
        for kind, one in ((data.kind, model), (f"{data.kind}, documents by the first", Asymmetric(model, whole))):
            values = ranked(data, one)[measure_name]
            ends = np.percentile(values[draws].mean(axis=1) / first[draws].mean(axis=1), [2.5, 97.5])
            entry = report[name].setdefault(f"{data.name}: {kind}", {measure_name: float(values.mean())})
            entry |= {"ratio": ends.tolist(), "of_first": float(values.mean() / first.mean())}


if __name__ == "__main__":
    run_main(main, QualitySettings)
