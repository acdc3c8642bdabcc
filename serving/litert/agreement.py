"""Whether a LiteRT version in 8 bits answers nearly as its model."""

from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.loaded import Loaded
from albert_tf.tasks.tables.held_out import of_run
from serving.evaluate import comparison
from serving.exportable.samples import as_array, model_features
from serving.lite.model import LiteModel
from serving.litert.trial_lines import ordinary, trial_lines

# Of so many answers one may have another label.
_LABELS = 200
_LEAST_COSINE = 0.99


def agrees(loaded: Loaded, version: Path) -> tuple[bool, str]:
    """Returns whether a version's answers are nearly those of the model, and a clause that says how near.

    They are asked the rows that the model's run held out, or else ordinary trial lines. At most one label in 200 is
    another, each vector's cosine is at least .99, and so is the correlation of numbers. A label is a class, a word's
    tag, an answer's text, a choice, or the likeliest word for a mask.
    """
    if table := of_run(loaded.source):
        is_near, how = comparison(loaded, version, table)
        return is_near, f"of the rows held out: {how}"
    model, lines = LiteModel(version), ordinary(loaded.tokenizer, trial_lines(loaded.tokenizer))
    kind, takes_pairs = model.description.answer.kind, model.description.answer.takes_pairs
    seconds = [*lines[1:], lines[0]]
    if kind == "vectors":
        least = float((loaded.encode(lines) * model.encode(lines)).sum(axis=1).min())
        return least >= _LEAST_COSINE, f"cosines in 8 bits are at least {least:.3f}"
    if kind == "choices":
        labels = _choices(loaded, model, lines, seconds)
    else:
        if kind == "words":
            mask = loaded.tokenizer.id_to_piece(loaded.tokenizer.mask_id)
            lines = [f"{mask} {line}" for line in lines]
        asked = (lines, seconds) if takes_pairs or kind == "spans" else (lines,)
        labels = [_labels(kind, one.predict(*asked)) for one in (loaded, model)]
    if kind == "numbers":
        correlation = float(np.corrcoef(*labels)[0, 1])
        return correlation >= _LEAST_COSINE, f"numbers in 8 bits have a correlation of {correlation:.3f}"
    changed, count = sum(one != other for one, other in zip(*labels, strict=True)), len(labels[0])
    return changed * _LABELS <= count, f"8 bits change {changed} of {count} trial answers"


def _labels(kind: str, answers: list) -> list[Any]:
    if kind == "tags":
        return [tag for words in answers for _, tag in words]
    if kind == "words":
        return [found[0][0] for masks in answers for found in masks]
    name = {"classes": "label", "labels": "labels", "spans": "answer"}.get(kind)
    return answers if name is None else [answer[name] for answer in answers]


def _choices(loaded: Loaded, model: LiteModel, contexts: list[str], texts: list[str]) -> list[list[int]]:
    """Returns which of two choices the model and its version take, for each context."""
    assert model.rows is not None
    rows = [row for pair in (texts, contexts) for row in model.rows.choices(contexts, pair).rows]
    sizes = np.array([len(row["input_ids"]) for row in rows], np.int32)
    inputs = {"lengths": sizes} | {
        name: np.stack([np.pad(row[name], (0, sizes.max() - len(row[name]))) for row in rows])
        for name in ("input_ids", "segment_ids")
    }
    features = {name: values[:, None] for name, values in model_features(inputs).items()}
    expected = as_array(loaded.model.predict(features, batch_size=32, verbose=0))
    found = np.array([one["logits"] for one in model.run(rows)])
    return [values.reshape(2, -1).argmax(axis=0).tolist() for values in (expected, found)]
