"""Whether an export answers as the Keras model does."""

import re
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.heads import mean_pool
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from serving.exportable import Exportable
from serving.exportable.embedders import EmbedderExportable
from serving.inference import ExitRule
from serving.inference.int8 import exact_products
from serving.run_saved_model import run_calls
from serving.samples import sample_inputs, whole_words
from tfrecords.base.errors import UserError
from tfrecords.framing import encode


class Tolerance(NamedTuple):
    """How far an output may be from the expected one.

    Attributes:
        angle: 1 - cosine, over all rows together.
        difference: the largest, relative to the largest expected value or to 1.
    """

    angle: float
    difference: float


# From the Keras model, by compute. Measured of encoders of 2 to 12 steps, among them ALBERT-base (also with weights 2.5
# times as large) and the trained MiniLM, with and without AVX-512: bfloat16 at most 7e-5 and 0.04, int8 0.03 and 0.25.
TOLERANCES = {
    "float32": Tolerance(1e-6, 1e-4),
    "float16": Tolerance(1e-3, 0.1),
    "bfloat16": Tolerance(1e-3, 0.1),
    "int8": Tolerance(0.1, 0.5),
    "int8_vnni": Tolerance(0.1, 0.5),
}
# How far an 8-bit export may be from exact products: so many times as far as they are from the Keras model, and a
# little for outputs of few numbers. Measured on the same encoders: right products at most 0.75 times the angle and 1.06
# times the difference (of 12 logits; 0.5 and 0.7 of larger outputs), clipped ones 10 and 2.6 times or more, and those
# of MiniLM, whose activations lose more in 8 bits than its weights, 1.26 and 0.7.
_EXACT_FACTORS, _EXACT_MORE = Tolerance(1.0, 2.0), Tolerance(1e-4, 0.02)
# Of a row's values together: what is shorter has no direction to speak of.
_SHORTEST = 0.1
_ROWS, _LONGEST = 4, 64
_LOWEST = -1e4

Arrays = dict[str, np.ndarray]


def check(version: Path, model: keras.Model, exportable: Exportable) -> dict[str, float]:
    """Loads a version in a fresh process and compares it with the Keras model it was made of.

    Compared are: the answers to random ids in rows of different lengths, their padding filled as a batching server
    fills it; the words proposed for a mask; early exit at a threshold that no row reaches with the default's answers;
    and of a model that takes strings, the ids it sees with the Python tokenizer's, and, where a text is a row, the
    answers to some texts. Of an 8-bit export, the answers to ids also with those of exact products: they leave as much
    of the difference from the Keras model as rounding to 8 bits explains, and products that were clipped are more.

    Args:
        version: The folder of the version.
        model: The Keras model.
        exportable: What was saved in the version.

    Returns:
        The largest absolute difference by output.

    Raises:
        UserError: the version does not load, or differs by more than its arithmetic explains.
    """
    by_ids = "serving_default" if exportable.framer is None else "ids"
    texts = [] if exportable.framer is None else _texts(exportable)
    calls = _calls(exportable, by_ids, texts)
    try:
        answers = dict(zip(calls, run_calls(version, list(calls.items()))))
    except RuntimeError as error:
        raise UserError(f"the export failed its check: {error}") from error
    tolerance = max(TOLERANCES[exportable.encoder.options.compute], TOLERANCES[model.compute_dtype])
    expected = of_ids = _shortened(expected_answers(model, calls[by_ids]), exportable)
    differences = compare(expected, answers[by_ids], tolerance)
    if exportable.encoder.options.is_quantized:
        _compare_with_exact(expected, _exact_answers(exportable, by_ids, calls[by_ids]), answers[by_ids])
    if texts:
        framed = _framed(exportable, texts, pairs=len(calls["tokenize"]) == 2)
        _require_ids(texts, framed, answers["tokenize"])
        if _texts_are_rows(exportable):
            expected = _shortened(expected_answers(model, framed), exportable)
            of_texts = _of_words(exportable, texts, expected, answers["serving_default"])
            differences |= compare(*of_texts, tolerance, "text ")
    if "fill_mask" in calls:
        words = _words(model, exportable, calls["fill_mask"], answers["fill_mask"])
        differences |= compare(*words, tolerance, "fill_mask ")
    if "stateful" in calls:
        # Of a document's first rows.
        differences |= compare(of_ids, answers["stateful"], tolerance, "stateful ")
    if "early_exit" in calls:
        plain = {name: values for name, values in answers["serving_default"].items() if values.dtype == np.float32}
        differences |= compare(plain, answers["early_exit"], tolerance, "early_exit ")
    return differences


def _calls(exportable: Exportable, by_ids: str, texts: list[str]) -> dict[str, Arrays]:
    """What the version is asked: inputs by signature."""
    signatures = exportable.signatures()
    calls = {by_ids: different_lengths(exportable)}
    if texts:
        calls["tokenize"] = dict.fromkeys(signatures["tokenize"].inputs, np.array([text.encode() for text in texts]))
        calls["serving_default"] = calls["tokenize"]
        if not _texts_are_rows(exportable):
            longest = exportable.options.max_seq_length
            calls["serving_default"] = sample_inputs(exportable, signatures["serving_default"], longest)
    if "fill_mask" in signatures:
        calls["fill_mask"] = _masked(exportable, calls[by_ids])
    if "stateful" in signatures:
        new = sample_inputs(exportable, signatures["stateful"], _LONGEST, len(calls[by_ids]["lengths"]))
        calls["stateful"] = new | calls[by_ids]
    if "early_exit" in signatures:
        count = len(next(iter(calls["serving_default"].values())))
        never = ExitRule(exportable.exit_kind, exportable.options.exit_rule).never
        threshold = np.full(count, never, np.float32)
        calls["early_exit"] = calls["serving_default"] | {"threshold": threshold}
    return calls


def _texts_are_rows(exportable: Exportable) -> bool:
    """Not those of questions, with contexts or choices."""
    signatures = exportable.signatures()
    return signatures["serving_default"].inputs == signatures["tokenize"].inputs


def different_lengths(exportable: Exportable) -> Arrays:
    """Makes up rows of different lengths whose padding holds each row's first id, as servers pad.

    Returns:
        The inputs of the exportable's signature that takes ids and lengths.
    """
    by_ids = exportable.ids_signatures()["serving_default"]
    longest = min(_LONGEST, exportable.options.max_seq_length)
    inputs = sample_inputs(exportable, by_ids, longest, _ROWS)
    shape = inputs["lengths"].shape
    inputs["lengths"] = np.linspace(longest, 3, int(np.prod(shape))).round().astype(np.int32).reshape(shape)
    padding = np.arange(longest) >= inputs["lengths"][..., None]
    inputs["input_ids"] = np.where(padding, inputs["input_ids"][..., :1], inputs["input_ids"])
    return inputs


def _features(inputs: Arrays) -> Arrays:
    """What the Keras models take, from what exports take by ids and lengths."""
    ids = inputs["input_ids"]
    mask = (np.arange(ids.shape[-1]) < inputs["lengths"][..., None]).astype(np.int32)
    segments = inputs.get("segment_ids", np.zeros_like(ids))
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}


def expected_answers(model: keras.Model, inputs: Arrays) -> Arrays:
    """Asks the Keras model.

    Args:
        model: A model that can be exported.
        inputs: As an exportable takes them by ids: input_ids and lengths, and segment_ids where there are any.

    Returns:
        The outputs by the names that exports give them, float32.
    """
    features = _features(inputs)
    model = model.encoder if isinstance(model, AlbertPretrainer) else model
    outputs = model(features, training=False)
    if isinstance(model, AlbertEncoder):
        mean = _array(mean_pool(outputs["sequence_output"], features["input_mask"]))
        pooled = {name: _array(outputs[name]) for name in ("pooled_output",) if name in outputs}
        return {"embedding": mean} | pooled
    if isinstance(model, AlbertSpanPredictor):
        other = {"no_answer_score": "answerable_logits"} if model.joint else {"end_log_probs": "end_log_probs"}
        return {name: _array(outputs[key]) for name, key in ({"start_log_probs": "start_log_probs"} | other).items()}
    if isinstance(model, AlbertTokenClassifier):
        return {"logits": _array(outputs) * features["input_mask"][..., None]}
    if isinstance(model, AlbertRegressor):
        return {"value": _array(outputs)[:, 0]}
    return {"embedding" if isinstance(model, AlbertSentenceEmbedder) else "logits": _array(outputs)}


def _shortened(expected: Arrays, exportable: Exportable) -> Arrays:
    """With embeddings of as many numbers as the export gives."""
    if not exportable.options.dimensions:
        return expected
    vectors = expected["embedding"][:, : exportable.options.dimensions]
    if isinstance(exportable, EmbedderExportable) and exportable.normalize:
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return expected | {"embedding": vectors}


def _array(tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(tensor).astype(np.float32)


def compare(expected: Arrays, answers: Arrays, tolerance: Tolerance, where: str = "") -> dict[str, float]:
    """Compares outputs with the Keras model's.

    Args:
        expected: The Keras model's outputs.
        answers: The export's, these and maybe more.
        tolerance: How far they may be.
        where: What is put before their names.

    Returns:
        The largest absolute difference of each expected output, by its name with `where` in front.

    Raises:
        UserError: one is above the tolerance.
    """
    differences = {}
    for name, values in expected.items():
        distance = measure(values, answers[name])
        difference = differences[where + name] = distance.difference * _scale(values)
        if not distance.difference <= tolerance.difference:
            raise UserError(
                f"the export failed its check: {where}{name} differs by {difference:.2g} from the Keras model"
            )
        if not distance.angle <= tolerance.angle:
            raise UserError(
                f"the export failed its check: {where}{name} has cosine {1 - distance.angle:.4g} with the Keras "
                f"model's, and {1 - tolerance.angle:.4g} is the least that its arithmetic explains"
            )
    return differences


def measure(expected: np.ndarray, answers: np.ndarray) -> Tolerance:
    """Says how far answers are from the expected ones. Values next to 0 have an angle of 0."""
    one, other = (np.maximum(values, _LOWEST).astype(np.float64) for values in (expected, answers))
    difference = float(np.max(np.abs(one - other))) / _scale(expected)
    # Positions where no answer may be stand at -1e30.
    one, other = (values[expected > _LOWEST] for values in (one, other))
    lengths = np.linalg.norm(one), np.linalg.norm(other)
    if lengths[0] < _SHORTEST * len(expected) ** 0.5:
        return Tolerance(0.0, difference)
    return Tolerance(float(1 - one @ other / max(lengths[0] * lengths[1], 1e-30)), difference)


def _scale(expected: np.ndarray) -> float:
    return max(1.0, float(np.max(np.abs(expected[expected > _LOWEST]))))


def _exact_answers(exportable: Exportable, name: str, inputs: Arrays) -> Arrays:
    """Those of a signature whose 8-bit products are exact."""
    with exact_products(exportable.encoder):
        signature = exportable.without_graphs().signatures()[name]
        function = signature.concrete()
    answers = function(**{key: tf.constant(inputs[key], spec.dtype) for key, spec in signature.inputs.items()})
    return {key: value.numpy() for key, value in answers.items()}


def _compare_with_exact(expected: Arrays, exact: Arrays, answers: Arrays) -> None:
    """Raises UserError where an output is further from the one of exact products than rounding explains.

    What rounds the other way somewhere is another answer at the end, but no further away than the Keras model's.
    """
    for name, values in expected.items():
        rounding, distance = measure(values, exact[name]), measure(exact[name], answers[name])
        allowed = Tolerance(
            *(factor * part + more for factor, part, more in zip(_EXACT_FACTORS, rounding, _EXACT_MORE))
        )
        if not (distance.angle <= allowed.angle and distance.difference <= allowed.difference):
            raise UserError(
                f"the export failed its check: {name} differs by {distance.difference:.2g} of its largest value from "
                f"what exact 8-bit products give ({allowed.difference:.2g} allowed), cosine {1 - distance.angle:.4f} "
                f"({1 - allowed.angle:.4f}): this machine clips them"
            )


def _texts(exportable: Exportable) -> list[str]:
    words = [str(word) for word in whole_words(exportable.options.tokenizer, 12)]
    return [" ".join(words), "Café 2,000 (two)", "", words[0].upper()]


def _framed(exportable: Exportable, texts: list[str], pairs: bool) -> Arrays:
    """The texts, each alone or paired with itself, as ids by the Python tokenizer."""
    tokenizer = exportable.options.tokenizer
    if exportable.exit_kind == "tagging":
        # Words of their own, one blank before each.
        texts = [text and tokenizer.word_prefix + text for text in texts]
    tokens = encode(tokenizer, texts)
    batch = exportable.framer.frame(*([tokens, tokens] if pairs else [tokens])).padded()
    arrays = {"input_ids": batch.input_ids, "lengths": batch.lengths, "segment_ids": batch.segment_ids}
    return {name: value.numpy() for name, value in arrays.items()}


def _require_ids(texts: list[str], framed: Arrays, answer: Arrays) -> None:
    for row, (text, length) in enumerate(zip(texts, framed["lengths"])):
        if answer["input_ids"][row][: answer["lengths"][row]].tolist() != framed["input_ids"][row, :length].tolist():
            raise UserError(f"the export failed its check: '{text}' becomes other ids in the graph than in Python")


def _of_words(exportable: Exportable, texts: list[str], expected: Arrays, answers: Arrays) -> tuple[Arrays, Arrays]:
    """Where answers are of words in place of tokens, those of the first text, whose words are a token each."""
    if exportable.exit_kind != "tagging":
        return expected, answers
    count = min(len(texts[0].split()), exportable.options.max_seq_length - 2)
    first = 0 if exportable.encoder.config.spec.last_token else 1
    return {"logits": expected["logits"][:1, first : first + count]}, {"logits": answers["logits"][:1, :count]}


def _masked(exportable: Exportable, rows: Arrays) -> Arrays:
    """A mask in each row, or in a text between two words."""
    if exportable.framer is None:
        by_lengths = {name: rows[name] for name in ("input_ids", "lengths")}
        return by_lengths | {"masked_lm_positions": np.ones((len(rows["lengths"]), 1), np.int32)}
    first, second = (whole_words(exportable.options.tokenizer, 2)[[0, -1]]).tolist()
    return {"text": np.array([f"{first} {exportable.framer.mask} {second}".encode()])}


def _words(model: AlbertPretrainer, exportable: Exportable, inputs: Arrays, answers: Arrays) -> tuple[Arrays, Arrays]:
    """What the model and the export give the words that the export proposes.

    In logarithms: all probabilities of a large vocabulary are small, and so are their differences.
    """
    if exportable.framer is not None:
        texts = re.split(exportable.framer.mask_pattern, inputs["text"][0].decode())
        parts = encode(exportable.options.tokenizer, texts)
        tokens = exportable.framer.masked(tf.RaggedTensor.from_row_lengths(parts, [2]))
        ids = exportable.framer.single(tokens).padded().input_ids.numpy()
        positions = np.argwhere(ids == exportable.options.tokenizer.mask_id)[:, 1:].astype(np.int32)
        inputs = {"input_ids": ids, "lengths": np.array([ids.size]), "masked_lm_positions": positions}
    positions = {"masked_lm_positions": inputs["masked_lm_positions"]}
    outputs = model(_features({name: inputs[name] for name in ("input_ids", "lengths")}) | positions, training=False)
    scores = _array(keras.ops.log_softmax(keras.ops.cast(outputs["masked_lm_logits"], "float32")))
    proposed = answers.get("ids")
    if proposed is None:
        numbers = {piece.encode(): number for number, piece in enumerate(exportable.options.tokenizer.pieces)}
        proposed = np.vectorize(numbers.__getitem__, otypes=[int])(answers["pieces"])
    expected = np.take_along_axis(scores, proposed, axis=-1)
    return {"log_probabilities": expected}, {"log_probabilities": np.log(np.maximum(answers["probabilities"], 1e-30))}
