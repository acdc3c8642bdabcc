"""Predictions of loaded models for texts, by class of model; `tfrecords.answers.numbers` lists their forms."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.preprocessing import Preprocessor
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from albert_tf.tasks.prediction import predict as predict_rows
from albert_tf.tasks.rows import FeatureRows, features_of, on_host
from tfrecords.answers.numbers import class_answers, label_answers, span_answers, tag_answers, word_answers
from tfrecords.answers.spans import find_answers
from tfrecords.answers.texts import (
    Truncation,
    check_asked,
    check_pairs,
    no_mask,
    no_texts,
    no_tokenizer,
    no_vectors,
    prompt_of,
    questions_of,
    refuse_seconds,
    words_of,
)
from tfrecords.base.columns import strings
from tfrecords.reading.framing import Framer, encode
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albert_tf.loaded import Loaded

# Logits of masked words that are in memory at a time: half a gigabyte.
_MOST_LOGITS = 2**27


def predict(loaded: "Loaded", texts: Sequence, seconds: Sequence[str] | None, batch_size: int):
    """Implements `Loaded.predict`."""
    kind = next((kind for kind in _ANSWERS if isinstance(loaded.model, kind)), None)
    if kind is None:
        raise no_texts(type(loaded.model).__name__)
    return _ANSWERS[kind](loaded, loaded.preprocessor(), texts, seconds, batch_size)


def embed(
    loaded: "Loaded", texts: Any, batch_size: int, show_progress: bool = False, prompt_name: str = ""
) -> np.ndarray:
    """Implements `Loaded.encode` without `normalize`; returns float32 [texts, dimensions]."""
    model = loaded.embedder
    if not isinstance(model, AlbertSentenceEmbedder):
        raise no_vectors(type(model).__name__)
    prompt, preprocess = prompt_of(loaded.task, prompt_name), loaded.preprocessor()
    rows = preprocess.rows([prompt + text for text in strings(texts, "texts")])
    outputs = _outputs(model, rows, preprocess, batch_size, show_progress)
    return np.array(outputs, "float32").reshape(-1, model.dimensions)


def look_up(loaded: "Loaded", texts: Any, prompt_name: str) -> np.ndarray:
    """Weighs each token of queries by the model's table; returns float32 [texts, dimensions]."""
    model, prompt = loaded.model, prompt_of(loaded.task, prompt_name)
    if loaded.tokenizer is None:
        raise no_tokenizer()
    asked = [prompt + text for text in strings(texts, "texts")]
    tokens = encode(loaded.tokenizer, asked, model.query_length)[:, : model.query_length]
    rows, ids = tokens.value_rowids().numpy(), tokens.values.numpy()
    vectors = np.zeros((len(asked), model.dimensions), "float32")
    vectors[rows, ids] = np.asarray(model.query_weights)[ids]
    return vectors


def _outputs(
    model: keras.Model, rows: FeatureRows, preprocess: Preprocessor, batch_size: int, show_progress: bool = False
) -> list:
    check_asked(batch_size, rows.truncation, preprocess.max_seq_length)
    return predict_rows(model, rows, batch_size, preprocess.max_seq_length, show_progress) if len(rows) else []


def _of_rows(loaded, preprocess, texts, seconds, batch_size) -> np.ndarray:
    check_pairs(loaded.task.get("inputs"), seconds)
    outputs = _outputs(loaded.model, preprocess.rows(texts, seconds), preprocess, batch_size)
    return np.asarray(outputs)


def _classes(loaded, preprocess, texts, seconds, batch_size) -> list[dict]:
    logits = _of_rows(loaded, preprocess, texts, seconds, batch_size)
    if loaded.model.multi_label:
        return label_answers(logits, class_names(loaded.model), loaded.task.get("threshold", 0.5))
    return class_answers(logits, class_names(loaded.model))


def class_names(model: keras.Model) -> Sequence[str]:
    """Returns the names of a model's classes; unnamed classes get their numbers."""
    return model.labels or [str(number) for number in range(model.num_classes)]


def _numbers(loaded, preprocess, texts, seconds, batch_size) -> list[float]:
    return _of_rows(loaded, preprocess, texts, seconds, batch_size).reshape(-1).tolist()


def _vectors(loaded, preprocess, texts, seconds, batch_size) -> np.ndarray:
    refuse_seconds(seconds)
    return embed(loaded, texts, batch_size)


def _tags(loaded, preprocess, texts, seconds, batch_size) -> list[list[tuple]]:
    # Only taggers need what reads a task's files.
    from albert_tf.tasks.tagging import TaggedExample, tagged_rows

    refuse_seconds(seconds)
    words, most = words_of(texts), preprocess.max_seq_length
    # A word has a token at least.
    rows = tagged_rows([TaggedExample(one[:most], None) for one in words], preprocess.tokenizer, most, training=False)
    outputs, names = _outputs(loaded.model, rows, preprocess, batch_size), class_names(loaded.model)
    return [tag_answers(*row, names) for row in zip(words, (all_[heads] for heads, all_ in zip(rows.heads, outputs)))]


def _spans(loaded, preprocess, questions, contexts, batch_size) -> list[dict]:
    from albert_tf.tasks.squad.data import SquadExample
    from albert_tf.tasks.squad.windows import make_rows

    asked = questions_of(questions, contexts)
    examples = [SquadExample(str(number), *texts, ()) for number, texts in enumerate(asked)]
    if not examples:
        return []
    rows = make_rows(examples, preprocess.tokenizer, preprocess.max_seq_length, training=False)
    outputs = _outputs(loaded.model, rows, preprocess, batch_size)
    return span_answers(find_answers(examples, rows, outputs), loaded.task.get("null_threshold"))


def _words(loaded, preprocess, texts, seconds, batch_size) -> list[list[list[tuple]]]:
    refuse_seconds(seconds)
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
            logits = output["masked_lm_logits"][np.flatnonzero(row == tokenizer.mask_id)]
            answers.append(word_answers(logits, tokenizer))
    return answers


@on_host
def _masked_rows(tokenizer: Tokenizer, texts: Sequence[str], max_seq_length: int) -> FeatureRows:
    framer = Framer(tokenizer, max_seq_length)
    parts = [re.split(framer.mask_pattern, text) for text in texts]
    tokens = encode(tokenizer, [part for text in parts for part in text], max_seq_length)
    counts = np.array([len(text) for text in parts], np.int64)
    whole = framer.masked(tf.RaggedTensor.from_row_lengths(tokens, counts, validate=False))
    rows = framer.single(whole)
    kept = rows.input_ids.row_lengths().numpy() - framer.special_tokens(1)
    truncation = Truncation.of(whole.row_lengths().numpy(), kept)
    features = FeatureRows(features_of(rows), {}, rows.pad_id, truncation=truncation)
    for text, row in zip(texts, features.tokens["input_ids"]):
        if tokenizer.mask_id not in row:
            raise no_mask(text, framer.mask, max_seq_length)
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
