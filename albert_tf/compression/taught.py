import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.models.text_student import OF_VECTORS, TAUGHT, representations
from albert_tf.tasks.rows import FeatureRows, RaggedArray, StoredArray
from albert_tf.training.batches import predict
from tfrecords.base import files
from tfrecords.base.script import progress_bar

# Rows per prediction of the teacher; limits the memory of its outputs.
_AT_ONCE = 512
_STATES, _VECTORS = "taught.{key}.f16", "taught.{key}.f32"


class _Teacher(keras.Model):
    def __init__(self, model: Any, lessons: list[str], steps: list[int]):
        # Keras would make a name from the class that TensorFlow does not allow as a scope.
        super().__init__(name="teacher")
        self.model, self.lessons, self.steps = model, lessons, steps
        # It has no variables of its own. Keras checks this under JAX.
        self.built = True

    def call(self, features: dict[str, Any], training: bool = False) -> dict[str, Any]:
        found = representations(self.model, features, self.lessons, self.steps)
        if "states" in found:
            found["states"] = ops.cast(ops.transpose(found["states"], (0, 1, 3, 2)), "float16")
        return found


def gigabytes(rows: FeatureRows, lessons: list[str], steps: list[int], width: int) -> float:
    """Returns the disk space that `taught` needs, in GB."""
    of_states = 2 * len(steps) * width * int(rows.lengths.sum()) if "states" in lessons else 0
    return 1e-9 * (of_states + (4 * width * len(rows) if OF_VECTORS & set(lessons) else 0))


def can_be_kept(lessons: list[str]) -> bool:
    """Returns whether the teacher's outputs for the loss terms `lessons` are small enough to store."""
    return not {"relations", "words"} & set(lessons)


def taught(
    rows: FeatureRows, teacher: keras.Model, lessons: list[str], steps: list[int], batch_size: int, folder: Path,
    key: str,
) -> FeatureRows:  # fmt: skip
    """Returns rows with the teacher's outputs added as features, which TextStudent reads.

    Hidden states after `steps` (float16) and vectors (float32) are stored in `folder`. A later call with the same `key`
    reuses the files.
    """
    name = hashlib.sha256(f"{key} {lessons} {steps}".encode()).hexdigest()[:16]
    states, vectors = (folder / form.format(key=name) for form in (_STATES, _VECTORS))
    if not states.is_file() or not vectors.is_file():
        _ask(rows, _Teacher(teacher, lessons, steps), batch_size, states, vectors)
    width = (teacher if hasattr(teacher, "blocks") else teacher.encoder).config.hidden_size
    tokens, values = dict(rows.tokens), dict(rows.values)
    if "states" in lessons:
        file = open(states, "rb")  # noqa: SIM115  (the rows read from it for as long as they are there)
        tokens[TAUGHT + "states"] = StoredArray(file, rows.tokens["input_ids"].splits, (len(steps), width), np.float16)
    if OF_VECTORS & set(lessons):
        values[TAUGHT + "vectors"] = np.memmap(vectors, np.float32, "r").reshape(len(rows), -1)
    return dataclasses.replace(rows, tokens=tokens, values=values)


def remove_taught(folder: Path) -> None:
    """Removes the files that `taught` wrote."""
    for path in folder.glob("taught.*"):
        path.unlink()


def _ask(rows: FeatureRows, teacher: _Teacher, batch_size: int, states: Path, vectors: Path) -> None:
    longest = int(rows.lengths.max())
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(files.replacing(path, durable=False)) for path in (states, vectors)]
        of_states, of_vectors = (stack.enter_context(open(path, "wb")) for path in opened)
        bar = stack.enter_context(progress_bar(total=len(rows), unit="row", desc="asking the teacher"))
        for part in _parts(rows):
            for answer, length in zip(predict(teacher, part, batch_size, longest), part.lengths):
                if "states" in answer:
                    of_states.write(np.ascontiguousarray(answer["states"][..., :length]))
                if "vectors" in answer:
                    of_vectors.write(np.ascontiguousarray(answer["vectors"], "float32"))
                bar.update()


def _parts(rows: FeatureRows) -> Iterator[FeatureRows]:
    for start in range(0, len(rows), _AT_ONCE):
        end = min(start + _AT_ONCE, len(rows))
        tokens = {}
        for name, array in rows.tokens.items():
            splits = array.splits[start : end + 1]
            values = array.read(splits[0], splits[-1])
            tokens[name] = RaggedArray(values, splits - splits[0], array.lead)
        values = {name: value[start:end] for name, value in rows.values.items()}
        yield dataclasses.replace(rows, tokens=tokens, values=values)
