"""Sample requests, for checks of an export and for a server's warm-up."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from serving.exportable.inputs import CLASSIFY, EXAMPLES, PREDICT, ExportSignature
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import FramedRows
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from serving.exportable.base import Exportable

# Where tensorflow_model_server looks in a version's folder.
WARM_UP = "assets.extra/tf_serving_warmup_requests"

Arrays = dict[str, np.ndarray]
# By the shape of a matrix of rows, with its length in tokens, and by the input's own shape.
_NUMBERS: dict[str, Callable[[tuple, tuple], np.ndarray]] = {
    "lengths": lambda rows, shape: np.full(shape, rows[-1]),
    "input_mask": lambda rows, shape: np.ones(rows),
    "segment_ids": lambda rows, shape: np.broadcast_to(np.arange(rows[-1]) >= rows[-1] // 3, rows),
    "threshold": lambda rows, shape: np.full(shape, 0.9),
    "truncate_left": lambda rows, shape: np.ones(shape),
    "skip_special_tokens": lambda rows, shape: np.ones(shape),
    **dict.fromkeys(("masked_lm_positions", "positions"), lambda rows, shape: np.full((rows[0], 1), rows[-1] // 2)),
    **dict.fromkeys(("allowed", "may_start"), lambda rows, shape: np.ones(rows)),
}


def _few(size: int) -> int:
    return max(size // 8, 1)


# Words of a text by the tokens of its row; of inputs that are not here, the row has equal parts. Questions and choices
# are short; the rest of the row is for the context.
_WORDS: dict[str, Callable[[int], int]] = {
    "text": lambda size: size - 2,
    "prompt_name": lambda size: 0,
    "question": _few,
    "choices": _few,
    "context": lambda size: size - 2 * _few(size),
}


def sample_inputs(
    exportable: "Exportable", signature: ExportSignature, length: int, batch: int = 1, seed: int = 0
) -> Arrays:
    """Inputs of a sample request, with rows or texts of about `length` tokens."""
    random = np.random.default_rng((seed, length, batch))
    if signature.inputs == EXAMPLES:
        return {"inputs": _examples(exportable, length, batch, random)}
    strings = [name for name, spec in signature.inputs.items() if spec.dtype == tf.string]
    part = max((length - 3) // max(len(strings), 1), 1)

    def values(name: str, spec: tf.TensorSpec) -> np.ndarray:
        if name in strings:
            words = _WORDS[name](length) if name in _WORDS else part
            return _texts(exportable, (batch, *spec.shape[1:]), words, random)
        rows, shape = (batch, *spec.shape[1:-1], length), (batch, *spec.shape[1:])
        if name in ("input_ids", "ids"):
            found = _ids(exportable, rows, random)
        else:
            found = _NUMBERS[name](rows, shape)
        return found.astype(spec.dtype.as_numpy_dtype)

    return {name: values(name, spec) for name, spec in signature.inputs.items()}


def model_features(inputs: Arrays) -> Arrays:
    """Converts an export's ids and lengths to a Keras model's features."""
    ids = inputs["input_ids"]
    mask = (np.arange(ids.shape[-1]) < inputs["lengths"][..., None]).astype(np.int32)
    segments = inputs.get("segment_ids", np.zeros_like(ids))
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}


def row_of(rows: FramedRows) -> Arrays:
    """Returns an export's inputs for rows."""
    batch = rows.padded()
    inputs = {"input_ids": batch.input_ids, "lengths": batch.lengths, "segment_ids": batch.segment_ids}
    return {name: value.numpy() for name, value in inputs.items()}


def as_array(tensor) -> np.ndarray:
    """Returns a Keras output as a float32 array."""
    return keras.ops.convert_to_numpy(tensor).astype(np.float32)


def whole_words(tokenizer: Tokenizer, count: int = 200) -> np.ndarray:
    """Returns up to `count` words that the tokenizer encodes as one token each."""
    words = []
    for token_id in np.flatnonzero(tokenizer.word_starts):
        word = tokenizer.decode([token_id]).strip()
        if word.isalpha() and tokenizer.encode(tokenizer.word_prefix + word) == [token_id]:
            words.append(word)
            if len(words) == count:
                break
    return np.array(words or ["a"])


def trial_texts(tokenizer: Tokenizer) -> list[str]:
    """Returns texts of the vocabulary's words, and one of other characters."""
    words = [str(word) for word in whole_words(tokenizer, 12)]
    return [" ".join(words), "Café 2,000 (two)", words[0].upper()]


def write_warm_up(exportable: "Exportable", version: Path, lengths: Sequence[int], names: Sequence[str]) -> None:
    """Writes a warm-up request for each named signature and each length.

    Raises UserError for an unknown signature.
    """
    signatures = exportable.signatures()
    unknown = [name for name in names if name not in signatures]
    if unknown:
        raise UserError(f"cannot warm up '{unknown[0]}'; the signatures are {', '.join(signatures)}")
    path = version / WARM_UP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, length in itertools.product(names, lengths):
            inputs = sample_inputs(exportable, signatures[name], length)
            writer.write(_log(name, signatures[name], inputs).SerializeToString())


def _ids(exportable: "Exportable", shape: tuple, random) -> np.ndarray:
    size = exportable.num_pieces
    ids = random.integers(min(5, size - 1), size, shape)
    ids[..., 0], ids[..., -1] = min(2, size - 1), min(3, size - 1)
    return ids


def _texts(exportable: "Exportable", shape: tuple, size: int, random) -> np.ndarray:
    words = whole_words(exportable.options.tokenizer)
    flat = [" ".join(random.choice(words, size)).encode() for _ in range(int(np.prod(shape)))]
    return np.array(flat).reshape(shape)


def _examples(exportable: "Exportable", length: int, batch: int, random) -> np.ndarray:
    default = exportable.signatures()["serving_default"]
    texts = {} if exportable.framer is None else sample_inputs(exportable, default, length, batch)
    rows = []
    for row in range(batch):
        example = tf.train.Example()
        feature = example.features.feature
        if exportable.framer is None:
            feature["input_ids"].int64_list.value.extend(_ids(exportable, (length,), random).tolist())
        for name, values in texts.items():
            feature[name].bytes_list.value.append(bytes(values[row]))
        rows.append(example.SerializeToString())
    return np.array(rows, object)


def _log(name: str, signature: ExportSignature, inputs: Arrays) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    if signature.method == PREDICT:
        request = log.predict_log.request
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value, signature.inputs[key].dtype))
    else:
        request = (log.classify_log if signature.method == CLASSIFY else log.regress_log).request
        request.input.example_list.examples.extend(tf.train.Example.FromString(one) for one in inputs["inputs"])
    request.model_spec.signature_name = name
    return log
