"""keras-hub's models with their preprocessors, in memory or by a preset's name, as a model and its tokenizer."""

import tempfile
from typing import Any

import keras

from albert_tf.checkpoints.keras_hub import load_keras_hub
from tfrecords.base.errors import UserError, first_line
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import tokenizer_in

_MODELS = "AlbertTextClassifier, BertTextClassifier or RobertaTextClassifier, or a backbone of theirs"
# Of pairs: both are cut to the same rows where texts alone are too long; "waterfall" cuts the second first.
_TRUNCATE = "round_robin"


def read_task(preset: Any) -> tuple[keras.Model, Tokenizer | None, dict[str, Any]]:
    """Reads a task or backbone of keras-hub, live or by its preset's name.

    Args:
        preset: the model, or a name that begins with kaggle:// or hf://, which keras-hub downloads.

    Returns:
        A model of this library with the weights, its tokenizer, None where there is none, and its task: the longest
        row that the preprocessor makes.

    Raises:
        UserError: keras-hub has no such preset, or the model, its activation or its tokenizer is not known here.
    """
    import keras_hub

    if isinstance(preset, str):
        preset = _download(preset)
    if not isinstance(preset, (keras_hub.models.Task, keras_hub.models.Backbone)):
        kind = type(preset).__name__
        raise UserError(f"load takes a path, a name, or a model: an {_MODELS}; not a {kind}")
    model = load_keras_hub(preset)
    preprocessor = getattr(preset, "preprocessor", None)
    if preprocessor is None:
        return model, None, {}
    if getattr(preprocessor, "truncate", _TRUNCATE) != _TRUNCATE:
        raise UserError(f"its preprocessor cuts pairs by '{preprocessor.truncate}'; only '{_TRUNCATE}' is known here")
    length = getattr(preprocessor, "sequence_length", None)
    return model, _tokenizer(preprocessor.tokenizer), {"max_seq_length": length} if length else {}


def _download(name: str) -> Any:
    import keras_hub

    last = None
    for kind in (keras_hub.models.TextClassifier, keras_hub.models.Backbone):
        try:
            found = kind.from_preset(name)
        except Exception as error:
            last = error  # keras-hub passes on what its downloaders and each part of a preset raise.
        else:
            if kind is not keras_hub.models.Backbone:
                return found
    raise UserError(f"keras-hub cannot load the preset '{name}': {first_line(last)}") from last


def _tokenizer(tokenizer: Any) -> Tokenizer | None:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_to_preset(folder)
        return tokenizer_in(folder)
