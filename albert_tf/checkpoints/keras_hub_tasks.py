import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import keras
from absl import logging

from albert_tf.checkpoints.keras_hub import library, load_keras_hub
from tfrecords.base.errors import UserError, first_line
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import tokenizer_in

_MODELS = "AlbertTextClassifier, BertTextClassifier or RobertaTextClassifier, or a backbone of theirs"
# Truncation of pairs. "waterfall" cuts the second text first.
_TRUNCATE = "round_robin"
# Texts by the feature that they test. The first ones must have equal ids in keras-hub; others only cause a warning.
_PLAIN = {
    "letters": "The quick Brown fox isn't here",
    "signs": "WHY?! (yes) it's 3.14, $5 e-mail a_b c++ #x",
    "accents": "café Ünïcode naïve São Łódź ñ",
    "quotes and dashes": "\u201cquotes\u201d \u2013 dash \u2014 \u2018x\u2019",
    "spaces": "  a  b\tc\nd ",
    "other scripts": "日本語 text Привет العربية हिन्दी",
    "emoji": "good 😀 👍🏽 ok",
}
_OTHERS = {
    "the name of a special token": "a [MASK] and [CLS] <mask> </s> b",
    "an ellipsis or ligature": "so… the ﬁnal ① ²",
    "a word of more than 100 characters": "a " + "x" * 120 + " b",
    "invisible characters": "zero\u200bwidth soft\u00adhyphen line\u2028end",
    "Turkish capitals": "İstanbul",
}


def read_task(preset: Any) -> tuple[keras.Model, Tokenizer | None, dict[str, Any]]:
    """Converts a keras-hub model; returns our model, its tokenizer or None, and a dict, perhaps with `max_seq_length`.

    `preset` is a task, a backbone, or a kaggle:// or hf:// name to download.
    """
    keras_hub = library()
    if isinstance(preset, str):
        preset, preprocessor = _download(preset)
    else:
        preprocessor = getattr(preset, "preprocessor", None)
    if not isinstance(preset, (keras_hub.models.Task, keras_hub.models.Backbone)):
        raise UserError(f"load takes a path, a name, or a model: an {_MODELS}; not a {type(preset).__name__}")
    return load_keras_hub(preset), *read_preprocessor(preprocessor)


def read_preprocessor(preprocessor: Any) -> tuple[Tokenizer | None, dict[str, Any]]:
    """Converts a keras-hub preprocessor or tokenizer to ours and task settings; raises UserError if its ids differ."""
    if preprocessor is None:
        return None, {}
    if getattr(preprocessor, "truncate", _TRUNCATE) != _TRUNCATE:
        raise UserError(f"its preprocessor cuts pairs by '{preprocessor.truncate}'; only '{_TRUNCATE}' is known here")
    theirs = getattr(preprocessor, "tokenizer", preprocessor)
    tokenizer, found = _nearest(theirs)
    if tokenizer is None or found:
        raise UserError(
            f"keras-hub's {type(theirs).__name__} reads {', '.join(found) or 'texts'} otherwise than any tokenizer "
            "here; give the model's preprocessor its usual options, or load(..., tokenizer=FOLDER)"
        )
    if found := _differing(tokenizer, theirs, _OTHERS):
        logging.warning("keras-hub's tokenizer gives other ids to texts with %s", ", or ".join(found))
    length = getattr(preprocessor, "sequence_length", None)
    return tokenizer, {"max_seq_length": length} if length else {}


def _nearest(theirs: Any) -> tuple[Tokenizer | None, list[str]]:
    # The first of our tokenizers with the same ids as keras-hub's; if none has, the last one and its differences.
    rules: list[tuple[bool | None, bool | None]] = [(None, None), (None, True), (False, True)]
    if isinstance(getattr(theirs, "lowercase", None), bool):
        rules = [(theirs.lowercase, not theirs.strip_accents)]
    tokenizer, found = None, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_to_preset(folder)
        for lower_case, keep_accents in rules:
            with contextlib.suppress(UserError):  # A SentencePiece model may define its case itself.
                tokenizer = tokenizer_in(folder, lower_case, keep_accents)
                if tokenizer is not None and not (found := _differing(tokenizer, theirs, _PLAIN)):
                    break
    return tokenizer, found


def _differing(tokenizer: Tokenizer, theirs: Any, texts: dict[str, str]) -> list[str]:
    rows = theirs(list(texts.values()))
    rows = rows.to_list() if hasattr(rows, "to_list") else rows
    return [what for (what, text), row in zip(texts.items(), rows) if tokenizer.encode(text) != [int(i) for i in row]]


def folder_preprocessor(folder: str | os.PathLike) -> Any:
    """Loads a preset's preprocessor or tokenizer; None if neither loads."""
    models, folder = library().models, Path(folder)
    kinds = {"preprocessor.json": models.TextClassifierPreprocessor, "tokenizer.json": models.Tokenizer}
    kind = next((kind for name, kind in kinds.items() if (folder / name).is_file()), None)
    try:
        return kind and kind.from_preset(str(folder))
    except Exception as error:
        # keras-hub passes on what each part of a preset raises.
        logging.warning("keras-hub cannot load the tokenizer of '%s', and its vocabulary alone is read: %s", folder,
                        first_line(error))  # fmt: skip
        return None


def _download(name: str) -> tuple[Any, Any]:
    models = library().models
    try:
        task = models.TextClassifier.from_preset(name)
        return task, task.preprocessor
    except Exception as error:
        # keras-hub passes on what its downloaders and each part of a preset raise; a backbone alone is no classifier.
        logging.debug("'%s' is no classifier: %s", name, first_line(error))
    try:
        return models.Backbone.from_preset(name), models.Tokenizer.from_preset(name)
    except Exception as error:
        raise UserError(f"keras-hub cannot load the preset '{name}': {first_line(error)}") from error
