"""Requests made up for a servable, to warm a server up and to check an export."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from serving.exportable import Servable, Signature
from serving.exportable.inputs import EXAMPLES
from tfrecords.tokenizers.base import Tokenizer


def sample_inputs(servable: Servable, signature: Signature, length: int, batch: int = 1, seed: int = 0) -> dict:
    """Arrays by input name for rows of `length` tokens; of texts, about that many."""
    random = np.random.default_rng((seed, length, batch))
    if signature.inputs == EXAMPLES:
        return {"inputs": _examples(servable, length, batch, random)}
    if any(spec.dtype == tf.string for spec in signature.inputs.values()):
        return _texts(servable, signature, length, batch, random)
    return {name: _numbers(name, spec, servable, length, batch, random) for name, spec in signature.inputs.items()}


def _numbers(name: str, spec: tf.TensorSpec, servable: Servable, length: int, batch: int, random) -> np.ndarray:
    leading = (batch, *spec.shape[1:-1]) if len(spec.shape) > 1 else (batch, *spec.shape[1:])
    rows = (*leading, length)
    makers: dict[str, Callable[[], np.ndarray]] = {
        "input_ids": lambda: _ids(servable, rows, random),
        "lengths": lambda: np.full((batch, *spec.shape[1:]), length),
        "input_mask": lambda: np.ones(rows),
        "segment_ids": lambda: np.broadcast_to(np.arange(length) >= length // 3, rows),
        "masked_lm_positions": lambda: np.full((batch, 1), length // 2),
        "threshold": lambda: np.full(batch, 0.9),
    }
    return makers[name]().astype(spec.dtype.as_numpy_dtype)


def _ids(servable: Servable, shape: tuple, random) -> np.ndarray:
    """Random ids between a first and a last that do not come again, as [CLS] and [SEP] do."""
    size = servable.encoder.config.vocab_size
    ids = random.integers(min(5, size - 1), size, shape)
    ids[..., 0], ids[..., -1] = min(2, size - 1), min(3, size - 1)
    return ids


def _texts(servable: Servable, signature: Signature, length: int, batch: int, random) -> dict[str, np.ndarray]:
    words = whole_words(servable.options.tokenizer)
    strings = [name for name, spec in signature.inputs.items() if spec.dtype == tf.string]
    # A question is short, and so is a choice; the rest of the row is for the context.
    short = max(length // 8, 1)
    sizes = {"question": short, "choices": short, "context": length - 2 * short, "text": length - 2}
    texts = {}
    for name, spec in signature.inputs.items():
        shape = (batch, *spec.shape[1:])
        if name in strings:
            size = max(sizes.get(name, (length - 3) // len(strings)), 1)
            flat = [" ".join(random.choice(words, size)).encode() for _ in range(int(np.prod(shape)))]
            texts[name] = np.array(flat).reshape(shape)
        else:
            texts[name] = _numbers(name, spec, servable, length, batch, random)
    return texts


def whole_words(tokenizer: Tokenizer, count: int = 200) -> np.ndarray:
    """Some words that are one token each."""
    found = []
    for token_id in np.flatnonzero(tokenizer.word_starts):
        word = tokenizer.decode([token_id]).strip()
        if word.isalpha() and tokenizer.encode(word) == [token_id]:
            found.append(word)
            if len(found) == count:
                break
    return np.array(found or ["a"])


def _examples(servable: Servable, length: int, batch: int, random) -> np.ndarray:
    """Serialized tf.Examples as the classify and regress signatures read them."""
    default = servable.signatures()["serving_default"]
    texts = {} if servable.framer is None else sample_inputs(servable, default, length, batch)
    rows = []
    for row in range(batch):
        feature = tf.train.Example().features.feature
        example = tf.train.Example()
        feature = example.features.feature
        if servable.framer is None:
            feature["input_ids"].int64_list.value.extend(_ids(servable, (length,), random).tolist())
        for name, values in texts.items():
            feature[name].bytes_list.value.append(bytes(values[row]))
        rows.append(example.SerializeToString())
    return np.array(rows, object)
