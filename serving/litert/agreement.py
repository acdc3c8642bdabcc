"""Whether a LiteRT version in 8 bits answers nearly as its model."""

from pathlib import Path

import numpy as np

from albert_tf.loaded import Loaded
from serving.lite.model import LiteModel
from serving.litert.trial_lines import trial_lines

# Of so many answers one may have another label.
_LABELS = 200
_LEAST_COSINE = 0.99


def agrees(loaded: Loaded, version: Path) -> bool:
    """Returns whether labels, vectors or numbers of the trial lines are nearly those of the model.

    At most one label in 200 is another, each vector's cosine is at least .99, and so is the correlation of numbers.
    False for other kinds of answers, for which there is no such measure.
    """
    model, lines = LiteModel(version), trial_lines(loaded.tokenizer)
    kind = model.description.answer.kind
    if kind == "vectors":
        return bool((loaded.encode(lines) * model.encode(lines)).sum(axis=1).min() >= _LEAST_COSINE)
    if kind not in ("classes", "labels", "numbers"):
        return False
    seconds = [*lines[1:], lines[0]] if model.description.answer.takes_pairs else None
    expected, found = loaded.predict(lines, seconds), model.predict(lines, seconds)
    if kind == "numbers":
        return bool(np.corrcoef(expected, found)[0, 1] >= _LEAST_COSINE)
    name = "label" if kind == "classes" else "labels"
    return sum(one[name] != other[name] for one, other in zip(expected, found)) * _LABELS <= len(lines)
