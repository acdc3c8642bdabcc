import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.loading.load import load
from albert_tf.suites import scores
from albert_tf.suites import sets as readers
from albert_tf.suites.scores import measure
from albert_tf.suites.sets import EmbeddingSet, Ranking
from tfrecords.answers.texts import TextModel
from tfrecords.base import files
from tfrecords.base.errors import UserError

# Figures of other rules are measured again.
_RULES = [files.sha256(module.__file__) for module in (scores, readers)]
# Figures that are counts, or are shown elsewhere.
_COUNTS = ("pairs", "queries", "passages", "interval", "parts")


@dataclasses.dataclass(frozen=True)
class _Embedder:
    loaded: Any
    batch_size: int

    def __getattr__(self, name: str) -> Any:
        def encode(texts: Sequence[str]) -> np.ndarray:
            return getattr(self.loaded, name)(texts, normalize=False, batch_size=self.batch_size, show_progress=True)

        return encode

    def similarity(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return self.loaded.similarity(first, second)


def evaluate_embeddings(
    path: str,
    sets: Sequence[EmbeddingSet],
    output_dir: str,
    depth: int = 0,
    batch_size: int = 64,
    loaded: TextModel | None = None,
) -> dict[str, Any]:
    """Measures a model on data sets; writes embeddings.json, and prints a table.

    `loaded` is the model, if it is open.

    Reuses results in embeddings.json for the same model, files and rules of scoring; keeps those of other sets there.
    """
    loaded = loaded or load(path, depth=depth)
    model, folder = loaded.identity(), files.make_output_dir(output_dir)
    place = folder / "embeddings.json"
    known = _known(place, model) if place.is_file() else {}
    report: dict[str, Any] = {
        "model": path,
        "identity": model,
        "dimensions": loaded.dimensions,
        "similarity": loaded.task.get("similarity_fn_name", "cosine"),
        "sets": {},
    }
    for data in sets:
        digests = [files.sha256(file) for file in data.files]
        key = hashlib.sha256(" ".join([model, *digests, *_RULES]).encode()).hexdigest()
        if known.get(data.name, {}).get("key") != key:
            print(f"{data.name}: {data.kind}{_counted(data)}", flush=True)
            known[data.name] = {"key": key, "figures": measure(data, _Embedder(loaded, batch_size))}
        report["sets"][data.name] = known[data.name]
        files.write_json(place, report | {"sets": known})
    rows = list(_rows(report))
    print("\n".join(_lines(rows)))
    print(f"wrote {place}")
    return report


def _counted(data: EmbeddingSet) -> str:
    if not isinstance(data, Ranking):
        return ""
    return f", {len(data.judgements):,} of {len(data.queries):,} queries can be judged"


def _known(place: Path, model: str) -> dict[str, Any]:
    try:
        content = files.read_json(place)
        found = {name: {"key": entry["key"], "figures": entry["figures"]} for name, entry in content["sets"].items()}
        return found if content["identity"] == model else {}
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"'{place}' holds no figures of a suite; remove it, or give another --output_dir") from error


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, str, str, float, str]]:
    for name, entry in report["sets"].items():
        for kind, figures in entry["figures"].items():
            (main, value), *others = [item for item in figures.items() if item[0] not in _COUNTS]
            said = [f"{other} {100 * number:.2f}" for other, number in others]
            if interval := figures.get("interval"):
                said.insert(0, f"95 %: {100 * interval[0]:.1f} to {100 * interval[1]:.1f}")
            yield name, kind, main, 100 * value, ", ".join(said)


def _lines(rows: Sequence[tuple[str, str, str, float, str]]) -> Iterator[str]:
    heads = ("set", "kind", "measure")
    widths = [max(len(head), *(len(row[column]) for row in rows)) for column, head in enumerate(heads)]
    yield "  ".join(f"{head:{width}}" for head, width in zip(heads, widths)) + "  times 100"
    for *texts, value, others in rows:
        yield "  ".join(f"{text:{width}}" for text, width in zip(texts, widths)) + f"  {value:9.2f}  {others}".rstrip()
