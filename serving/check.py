"""Checks that an export answers as the Keras model does."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from serving.exportable import Exportable
from serving.exportable.base import KINDS, exported_part
from serving.exportable.samples import Arrays, model_features, row_of, sample_inputs, trial_texts
from serving.inference import ExitRule
from serving.run_saved_model import run_calls
from tfrecords.base.errors import UserError, first_line, refuse


class Tolerance(NamedTuple):
    """Maximum differences of an output from the expected one.

    Attributes:
        angle: 1 - cosine, over all rows together.
        difference: Relative to the largest expected value, at least to 1.
    """

    angle: float
    difference: float


# Allowed differences from the Keras model, by compute. Measured on encoders of 2 to 12 steps, with and without AVX-512,
# such as ALBERT-base (also with weights 2.5 times as large) and the trained MiniLM: bfloat16 at most 7e-5 and 0.04,
# int8 0.03 and 0.25.
TOLERANCES = {
    "float32": Tolerance(1e-6, 1e-4),
    "float16": Tolerance(1e-3, 0.1),
    "bfloat16": Tolerance(1e-3, 0.1),
    "int8": Tolerance(0.1, 0.5),
}
# Minimum norm of a row's values; the direction of a shorter vector is noise.
_SHORTEST = 0.1
_ROWS, _LONGEST = 4, 64
# Tokens of the row that each signature is asked.
_SHORT = 16
_LOWEST = -1e4


def ask_once(version: Path, exportable: Exportable) -> None:
    """Loads a version anew, and asks every signature one row.

    Raises UserError if it does not load, or a signature does not answer, or answers with NaN or infinity.
    """
    asked = "loading"
    try:
        with _without_optimizer():
            signatures = tf.saved_model.load(str(version)).signatures
            for name, signature in exportable.signatures().items():
                asked = f"the signature {name}"
                inputs = sample_inputs(exportable, signature, min(_SHORT, exportable.options.max_seq_length))
                row = {key: tf.constant(inputs[key], one.dtype) for key, one in signature.inputs.items()}
                for output, values in signatures[name](**row).items():
                    if values.dtype.is_floating and not np.isfinite(values).all():
                        raise ValueError(f"its output {output} is NaN or infinite; check the model's weights")
    except Exception as error:
        raise UserError(f"the export failed its check: {asked}: {first_line(error)}") from error


# To rewrite the graphs takes twice as long as all else.
@contextlib.contextmanager
def _without_optimizer() -> Iterator[None]:
    name, options = "disable_meta_optimizer", tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({name: options.get(name, False)})


def check(version: Path, model: keras.Model, exportable: Exportable) -> dict[str, float]:
    """Loads a version in a new process and compares it with its Keras model.

    It compares answers to random ids in padded rows of different lengths; early exit at an unreachable
    threshold; and, if the export takes texts, their ids and answers.

    Returns:
        The largest absolute difference by output.

    Raises:
        UserError: The version does not load, or differs by more than rounding explains.
    """
    by_ids = "serving_default" if exportable.framer is None else "ids"
    texts = [] if exportable.framer is None else [*trial_texts(exportable.options.tokenizer), ""]
    calls = _calls(exportable, by_ids, texts)
    try:
        answers = dict(zip(calls, run_calls(version, list(calls.items()))))
    except RuntimeError as error:
        raise UserError(f"the export failed its check: {error}") from error
    tolerance = max(TOLERANCES[exportable.encoder.options.compute], TOLERANCES[model.compute_dtype])
    expected = exportable.shortened(expected_answers(model, calls[by_ids]))
    differences = compare(expected, answers[by_ids], tolerance)
    if texts:
        framed = row_of(exportable.framer.frame(*[exportable.check_tokens(texts)] * len(calls["tokenize"])))
        _require_ids(texts, framed, answers["tokenize"])
        if exportable.rows_are_answers:
            expected = exportable.shortened(expected_answers(model, framed))
            of_texts = exportable.compared_texts(texts, expected, answers["serving_default"])
            differences |= compare(*of_texts, tolerance, "text ")
    if "early_exit" in calls:
        plain = {name: values for name, values in answers["serving_default"].items() if values.dtype == np.float32}
        differences |= compare(plain, answers["early_exit"], tolerance, "early_exit ")
    return differences


def _calls(exportable: Exportable, by_ids: str, texts: list[str]) -> dict[str, Arrays]:
    signatures = exportable.signatures()
    calls = {by_ids: different_lengths(exportable)}
    if texts:
        calls["tokenize"] = dict.fromkeys(signatures["tokenize"].inputs, np.array([text.encode() for text in texts]))
        calls["serving_default"] = calls["tokenize"]
        if not exportable.rows_are_answers:
            longest = exportable.options.max_seq_length
            calls["serving_default"] = sample_inputs(exportable, signatures["serving_default"], longest)
    if "early_exit" in signatures:
        count = len(next(iter(calls["serving_default"].values())))
        never = ExitRule(exportable.exit_kind, exportable.options.exit_rule).never
        threshold = np.full(count, never, np.float32)
        calls["early_exit"] = calls["serving_default"] | {"threshold": threshold}
    return calls


def different_lengths(exportable: Exportable) -> Arrays:
    """Returns ids and lengths of rows of different lengths, padded with each row's first id as servers do."""
    by_ids = exportable.ids_signatures()["serving_default"]
    longest = min(_LONGEST, exportable.options.max_seq_length)
    inputs = sample_inputs(exportable, by_ids, longest, _ROWS)
    shape = inputs["lengths"].shape
    inputs["lengths"] = np.linspace(longest, 3, int(np.prod(shape))).round().astype(np.int32).reshape(shape)
    padding = np.arange(longest) >= inputs["lengths"][..., None]
    inputs["input_ids"] = np.where(padding, inputs["input_ids"][..., :1], inputs["input_ids"])
    return inputs


def expected_answers(model: keras.Model, inputs: Arrays) -> Arrays:
    """Returns the Keras model's outputs, named as in exports."""
    model = exported_part(model)
    return KINDS[type(model)].keras_answers(model, model_features(inputs))


def compare(expected: Arrays, answers: Arrays, tolerance: Tolerance, where: str = "") -> dict[str, float]:
    """Returns the largest absolute difference of each output; `where` precedes the outputs' names.

    Raises UserError if one is above the tolerance.
    """
    differences = {}
    for name, values in expected.items():
        distance = measure(values, answers[name])
        difference = differences[where + name] = distance.difference * _scale(values)
        refuse({
            f"the export failed its check: {where}{name} differs by {difference:.2g} from the Keras model":
                not distance.difference <= tolerance.difference,
            f"the export failed its check: {where}{name} has cosine {1 - distance.angle:.4g} with the Keras "
            f"model's, and {1 - tolerance.angle:.4g} is the least that its arithmetic explains":
                not distance.angle <= tolerance.angle,
        })  # fmt: skip
    return differences


def measure(expected: np.ndarray, answers: np.ndarray) -> Tolerance:
    """Returns differences from the expected values."""
    one, other = (np.maximum(values, _LOWEST).astype(np.float64) for values in (expected, answers))
    difference = float(np.max(np.abs(one - other))) / _scale(expected)
    # Positions that no answer may have are -1e30.
    one, other = (values[expected > _LOWEST] for values in (one, other))
    lengths = np.linalg.norm(one), np.linalg.norm(other)
    if lengths[0] < _SHORTEST * len(expected) ** 0.5:
        return Tolerance(0.0, difference)
    return Tolerance(float(1 - one @ other / max(lengths[0] * lengths[1], 1e-30)), difference)


def _scale(expected: np.ndarray) -> float:
    return max(1.0, float(np.max(np.abs(expected[expected > _LOWEST]))))


def _require_ids(texts: list[str], framed: Arrays, answer: Arrays) -> None:
    for row, (text, length) in enumerate(zip(texts, framed["lengths"])):
        if answer["input_ids"][row][: answer["lengths"][row]].tolist() != framed["input_ids"][row, :length].tolist():
            raise UserError(f"the export failed its check: '{text}' becomes other ids in the graph than in Python")
