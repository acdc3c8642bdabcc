"""Whether an export answers as the Keras model does."""

from pathlib import Path

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifier import AlbertRegressor
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from albert_tf.models.token_classifier import AlbertTokenClassifier
from albert_tf.tasks.rows import frame
from serving.run_saved_model import run_calls
from serving.samples import sample_inputs, whole_words
from serving.servables import Servable
from tfrecords.errors import UserError

# Largest difference of an output from the Keras model's, relative to its largest value or to 1, by compute.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1, "int8": 0.3}
_ROWS, _LONGEST = 4, 64
_LOWEST = -1e4


def check(version: Path, model: keras.Model, servable: Servable) -> dict[str, float]:
    """Loads a version in a fresh process and compares it with the model it was made of, on random rows.

    The rows are of different lengths, their padding filled as a batching server fills it. Of a model that takes
    strings, the ids it sees are compared with those of the Python tokenizer too.

    Returns:
        The largest absolute difference by output.

    Raises:
        UserError: the version does not load, or differs by more than its arithmetic explains.
    """
    inputs = _rows_of_different_lengths(servable)
    calls = [("serving_default" if servable.framer is None else "ids", inputs)]
    if servable.framer is not None:
        names = servable.signatures()["tokenize"].inputs
        texts = _texts(servable)
        calls.append(("tokenize", {name: np.array([text.encode() for text in texts]) for name in names}))
        default = servable.signatures()["serving_default"]
        calls.append(("serving_default", sample_inputs(servable, default, servable.options.max_seq_length)))
    try:
        answers = run_calls(version, calls)
    except RuntimeError as error:
        raise UserError(f"the export failed its check: {error}") from error
    if servable.framer is not None:
        _require_ids(servable, texts, pairs=len(names) == 2, answer=answers[1])
    compute = servable.encoder.options.compute if model.compute_dtype == "float32" else model.compute_dtype
    return _differences(_expected(model, inputs), answers[0], TOLERANCES[compute])


def _rows_of_different_lengths(servable: Servable) -> dict[str, np.ndarray]:
    """Token ids whose padding holds each row's first id, as servers pad."""
    by_ids = servable.ids_signatures()["serving_default"]
    longest = min(_LONGEST, servable.options.max_seq_length)
    inputs = sample_inputs(servable, by_ids, longest, _ROWS)
    shape = inputs["lengths"].shape
    inputs["lengths"] = np.linspace(longest, 3, int(np.prod(shape))).round().astype(np.int32).reshape(shape)
    padding = np.arange(longest) >= inputs["lengths"][..., None]
    inputs["input_ids"] = np.where(padding, inputs["input_ids"][..., :1], inputs["input_ids"])
    return inputs


def _expected(model: keras.Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of the Keras model by the names that the servables give them."""
    ids = inputs["input_ids"]
    mask = (np.arange(ids.shape[-1]) < inputs["lengths"][..., None]).astype(np.int32)
    segments = inputs.get("segment_ids", np.zeros_like(ids))
    features = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}
    kind = AlbertEncoder if isinstance(model, AlbertPretrainer) else type(model)
    outputs = (model.encoder if kind is not type(model) else model)(features, training=False)
    if kind is AlbertEncoder:
        weights = mask[..., None].astype(np.float32)
        mean = np.sum(_array(outputs["sequence_output"]) * weights, axis=1) / np.sum(weights, axis=1)
        pooled = {name: _array(outputs[name]) for name in ("pooled_output",) if name in outputs}
        return {"embedding": mean} | pooled
    if kind is AlbertSpanPredictor:
        other = {"no_answer_score": "answerable_logits"} if model.joint else {"end_log_probs": "end_log_probs"}
        return {name: _array(outputs[key]) for name, key in ({"start_log_probs": "start_log_probs"} | other).items()}
    if kind is AlbertTokenClassifier:
        return {"logits": _array(outputs) * mask[..., None]}
    if kind is AlbertRegressor:
        return {"value": _array(outputs)[:, 0]}
    return {"embedding" if kind is AlbertSentenceEmbedder else "logits": _array(outputs)}


def _array(tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(tensor).astype(np.float32)


def _differences(expected: dict, found: dict, tolerance: float) -> dict[str, float]:
    differences = {}
    for name, values in expected.items():
        # Positions where no answer may be stand at -1e30.
        values, others = np.maximum(values, _LOWEST), np.maximum(found[name], _LOWEST)
        differences[name] = float(np.max(np.abs(values - others)))
        if not differences[name] <= tolerance * max(1.0, float(np.max(np.abs(values[values > _LOWEST])))):
            raise UserError(
                f"the export failed its check: {name} differs by {differences[name]:.2g} from the Keras model"
            )
    return differences


def _texts(servable: Servable) -> list[str]:
    words = [str(word) for word in whole_words(servable.options.tokenizer, 12)]
    return [" ".join(words), "Café 2,000 (two)", "", words[0].upper()]


def _require_ids(servable: Servable, texts: list[str], pairs: bool, answer: dict[str, np.ndarray]) -> None:
    tokenizer, limit = servable.options.tokenizer, servable.options.max_seq_length
    for row, text in enumerate(texts):
        tokens = np.array(tokenizer.encode(text), np.int32)
        ids, _ = frame(tokenizer, tokens, tokens if pairs else None, limit)
        if answer["input_ids"][row][: answer["lengths"][row]].tolist() != ids.tolist():
            raise UserError(f"the export failed its check: '{text}' becomes other ids in the graph than in Python")
