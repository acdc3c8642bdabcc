"""Predictions of loaded models for texts, by class of model.

| model | prediction for each text |
|---|---|
| AlbertClassifier | {"label": name (`multi_label`: "labels": [name]), "probabilities": {name: float}} |
| AlbertRegressor | float |
| AlbertTokenClassifier | [(word, label)]; label is None for truncated words |
| AlbertSpanPredictor | {"answer": text or "", "score": float, "null_odds": float}, high without an answer |
| AlbertSentenceEmbedder, AlbertEncoder | a row of a float32 array [texts, dimensions] |
| AlbertPretrainer | for each [MASK] (RoBERTa: <mask>), the likeliest tokens: [(token, probability)] |

Unnamed classes are called by their numbers, as strings.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.sentence_folders import default_prompt
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.preprocessing import Preprocessor, pairs
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.heads import IMPOSSIBLE
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from albert_tf.tasks.rows import FeatureRows, features_of, on_host
from albert_tf.tasks.truncation import Truncation
from albert_tf.training.batches import predict as predict_rows
from tfrecords.base.columns import items, strings
from tfrecords.base.errors import UserError, check_counts
from tfrecords.framing import Framer, encode
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albert_tf.loading.loaded import Loaded

_TOP = 5
# Logits of masked words that are in memory at a time: half a gigabyte.
_MOST_LOGITS = 2**27


def predict(loaded: "Loaded", texts: Sequence, seconds: Sequence[str] | None, batch_size: int):
    """Implements `Loaded.predict`."""
    kind = next((kind for kind in _ANSWERS if isinstance(loaded.model, kind)), None)
    if kind is None:
        name = type(loaded.model).__name__
        raise UserError(f"predict takes no texts for an {name}; call its model with features, or run_evaluation")
    return _ANSWERS[kind](loaded, loaded.preprocessor(), texts, seconds, batch_size)


def embed(
    loaded: "Loaded", texts: Any, batch_size: int, show_progress: bool = False, prompt_name: str = ""
) -> np.ndarray:
    """Implements `Loaded.encode` without `normalize`; returns float32 [texts, dimensions]."""
    model = loaded.embedder
    if not isinstance(model, AlbertSentenceEmbedder):
        raise UserError(f"an {type(model).__name__} makes no vectors; call predict, or load an encoder or embedder")
    prompts = loaded.task.get("prompts", {})
    if prompt_name and prompt_name not in prompts:
        known = ", ".join(prompts) or "none"
        raise UserError(f"prompt_name '{prompt_name}' is no prompt of the model; it has {known}")
    prompt, preprocess = prompts[prompt_name] if prompt_name else default_prompt(loaded.task), loaded.preprocessor()
    rows = preprocess.rows([prompt + text for text in strings(texts, "texts")])
    outputs = _outputs(model, rows, preprocess, batch_size, show_progress)
    return np.array(outputs, "float32").reshape(-1, model.dimensions)


# How vectors are compared, by sentence-transformers' names (its util/similarity.py): first [n, d], second [m, d].
_SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda first, second: unit(first) @ unit(second).T,
    "dot": lambda first, second: first @ second.T,
    "euclidean": lambda first, second: -np.linalg.norm(first[:, None] - second[None], axis=-1),
    "manhattan": lambda first, second: -np.abs(first[:, None] - second[None]).sum(axis=-1),
}


def similarity(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the similarities of n and m vectors by the measure `name`: float32 [n, m]."""
    if name not in _SIMILARITIES:
        raise UserError(f"similarity '{name}' is not known; known are {', '.join(_SIMILARITIES)}")
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise UserError(f"vectors of shape {first.shape} and {second.shape} cannot be compared; give [n, dimensions]")
    return _SIMILARITIES[name](first, second)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors scaled to length 1; zero vectors stay zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _outputs(
    model: keras.Model, rows: FeatureRows, preprocess: Preprocessor, batch_size: int, show_progress: bool = False
) -> list:
    check_counts(batch_size=batch_size)
    if rows.truncation.truncated_texts:
        logging.warning("truncated to rows of %d tokens: %s", preprocess.max_seq_length, rows.truncation)
    return predict_rows(model, rows, batch_size, preprocess.max_seq_length, show_progress) if len(rows) else []


def _of_rows(loaded, preprocess, texts, seconds, batch_size) -> np.ndarray:
    inputs = loaded.task.get("inputs")
    if inputs is not None and (len(inputs) == 2) != (seconds is not None):
        expected = "pairs: predict(firsts, seconds)" if len(inputs) == 2 else "single texts: predict(texts)"
        raise UserError(f"the model was trained on {expected}, with {', '.join(inputs)}")
    outputs = _outputs(loaded.model, preprocess.rows(texts, seconds), preprocess, batch_size)
    return np.asarray(outputs)


def _classes(loaded, preprocess, texts, seconds, batch_size) -> list[dict]:
    names = class_names(loaded.model)
    logits = _of_rows(loaded, preprocess, texts, seconds, batch_size).reshape(-1, len(names))
    if loaded.model.multi_label:
        threshold = loaded.task.get("threshold", 0.5)
        found = [dict(zip(names, row)) for row in (1 / (1 + np.exp(-logits.astype("float64")))).tolist()]
        return [
            {"labels": [name for name, share in shares.items() if share > threshold], "probabilities": shares}
            for shares in found
        ]
    shares = [dict(zip(names, row)) for row in _softmax(logits).tolist()]
    return [{"label": max(share, key=share.get), "probabilities": share} for share in shares]


def class_names(model: keras.Model) -> Sequence[str]:
    """Returns the names of a model's classes; unnamed classes get their numbers."""
    return model.labels or [str(number) for number in range(model.num_classes)]


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=-1, keepdims=True)


def _numbers(loaded, preprocess, texts, seconds, batch_size) -> list[float]:
    return _of_rows(loaded, preprocess, texts, seconds, batch_size).reshape(-1).tolist()


def _vectors(loaded, preprocess, texts, seconds, batch_size) -> np.ndarray:
    _refuse_seconds(seconds)
    return embed(loaded, texts, batch_size)


def _refuse_seconds(seconds) -> None:
    if seconds is not None:
        raise UserError("the model takes single texts; leave out seconds")


def _tags(loaded, preprocess, texts, seconds, batch_size) -> list[list[tuple]]:
    # Only taggers need what reads a task's files.
    from albert_tf.tasks.tagging import TaggedExample, tagged_rows

    _refuse_seconds(seconds)
    listed = items(texts, "texts")
    words = [strings(text.split() if isinstance(text, str) else text, f"texts[{i}]") for i, text in enumerate(listed)]
    examples = [TaggedExample(of_text, None) for of_text in words]
    if any(not example.words for example in examples):
        raise UserError("a text has no words to tag; leave it out")
    rows = tagged_rows(examples, preprocess.tokenizer, preprocess.max_seq_length, training=False)
    outputs, names = _outputs(loaded.model, rows, preprocess, batch_size), class_names(loaded.model)
    answers = []
    for example, heads, logits in zip(examples, rows.heads, outputs):
        tags = [names[number] for number in logits[heads].argmax(axis=-1)]
        answers.append(list(zip(example.words, tags + [None] * (len(example.words) - len(tags)))))
    return answers


def _spans(loaded, preprocess, questions, contexts, batch_size) -> list[dict]:
    from albert_tf.tasks.squad.answers import find_answers
    from albert_tf.tasks.squad.data import SquadExample
    from albert_tf.tasks.squad.windows import make_rows

    if contexts is None:
        raise UserError("spans are found in contexts; call predict(questions, contexts)")
    texts = zip(*pairs(questions, contexts))
    examples = [SquadExample(str(number), question, context, ()) for number, (question, context) in enumerate(texts)]
    if not examples:
        return []
    rows = make_rows(examples, preprocess.tokenizer, preprocess.max_seq_length, training=False)
    outputs, threshold = _outputs(loaded.model, rows, preprocess, batch_size), loaded.task.get("null_threshold")
    return [
        {
            "answer": answer.text(threshold),
            "score": answer.candidates[0].score if answer.candidates else IMPOSSIBLE,
            "null_odds": answer.null_odds,
        }
        for answer in find_answers(examples, rows, outputs)
    ]


def _words(loaded, preprocess, texts, seconds, batch_size) -> list[list[list[tuple]]]:
    _refuse_seconds(seconds)
    tokenizer = preprocess.tokenizer
    texts = strings(texts, "texts")
    rows = _masked_rows(tokenizer, texts, preprocess.max_seq_length)
    # Every token is given a number for each piece.
    numbers = int(rows.lengths.max(initial=1)) * loaded.model.encoder.config.vocab_size
    few = max(1, min(batch_size, _MOST_LOGITS // numbers))
    answers = []
    for start in range(0, len(texts), few):
        rows = _masked_rows(tokenizer, texts[start : start + few], preprocess.max_seq_length)
        for row, output in zip(rows.tokens["input_ids"], _outputs(loaded.model, rows, preprocess, few)):
            shares = _softmax(output["masked_lm_logits"][np.flatnonzero(row == tokenizer.mask_id)])
            best = np.argsort(-shares, axis=-1)[:, :_TOP].tolist()
            pieces = [[(tokenizer.id_to_piece(i), float(share[i])) for i in ids] for ids, share in zip(best, shares)]
            answers.append(pieces)
    return answers


@on_host
def _masked_rows(tokenizer: Tokenizer, texts: Sequence[str], max_seq_length: int) -> FeatureRows:
    framer = Framer(tokenizer, max_seq_length)
    parts = [re.split(framer.mask_pattern, text) for text in texts]
    tokens = encode(tokenizer, [part for text in parts for part in text])
    counts = np.array([len(text) for text in parts], np.int64)
    whole = framer.masked(tf.RaggedTensor.from_row_lengths(tokens, counts, validate=False))
    rows = framer.single(whole)
    kept = rows.input_ids.row_lengths().numpy() - framer.special_tokens(1)
    truncation = Truncation.of(whole.row_lengths().numpy(), kept)
    features = FeatureRows(features_of(rows), {}, rows.pad_id, truncation=truncation)
    for text, row in zip(texts, features.tokens["input_ids"]):
        if tokenizer.mask_id not in row:
            raise UserError(
                f"{text[:60]!r} has no {framer.mask} in its first {max_seq_length} tokens; put one where a word goes"
            )
    return features


_ANSWERS: dict[type, Callable] = {
    AlbertClassifier: _classes,
    AlbertRegressor: _numbers,
    AlbertTokenClassifier: _tags,
    AlbertSpanPredictor: _spans,
    AlbertSentenceEmbedder: _vectors,
    AlbertEncoder: _vectors,
    AlbertPretrainer: _words,
}
