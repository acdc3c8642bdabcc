"""A model with its tokenizer and the description of its task, from anything on disk that holds one."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf import answers
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.config_heads import class_names
from albert_tf.checkpoints.depth import at_depth
from albert_tf.checkpoints.sentence_folders import (
    default_prompt,
    is_of_sentence_transformers,
    make_embedder,
    read_modules,
    read_settings,
    tokenizer_limit,
)
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.model_files import MODEL_FILE, load_task, unknown_files
from albert_tf.models.classifiers import AlbertRegressor, ClassesModel
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.own_tokenizer import check_own, check_rows
from albert_tf.preprocessing import Preprocessor
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.loading import read_tokenizer, tokenizer_in


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Holds a model and what lies beside it.

    Attributes:
        model: a model of this library, not compiled.
        tokenizer: the one that the model was trained with; None where there is none.
        task: what fine-tuning wrote of it, with its "metrics"; the labels alone where a published checkpoint names
            its classes; {} where nothing is said.
    """

    model: keras.Model
    tokenizer: Tokenizer | None
    task: dict[str, Any]

    @functools.cached_property
    def embedder(self) -> keras.Model:
        """The model that makes vectors: itself, or of a bare encoder the mean of its tokens' states.

        It is one for all calls: its graph goes with it, and to trace an encoder takes seconds.
        """
        is_bare = isinstance(self.model, AlbertEncoder)
        return AlbertSentenceEmbedder(self.model, normalize=False) if is_bare else self.model

    def preprocessor(self, max_seq_length: int = 0) -> Preprocessor:
        """Makes what turns texts into the model's features.

        Args:
            max_seq_length: of the longest row, in tokens; 0: the task's, or else all that the encoder takes.

        Raises:
            UserError: there is no tokenizer, or the encoder takes no rows of that length.
        """
        if self.tokenizer is None:
            raise UserError("there is no tokenizer beside the model; give it: load(..., tokenizer='folder')")
        limit = getattr(self.model, "encoder", self.model).config.max_seq_length
        if max_seq_length > limit:
            raise UserError(f"max_seq_length={max_seq_length} is more than the model's {limit} positions")
        return Preprocessor(self.tokenizer, max_seq_length or min(self.task.get("max_seq_length") or limit, limit))

    def predict(self, texts: Sequence, seconds: Sequence[str] | None = None, batch_size: int = 32) -> list | np.ndarray:
        """Answers texts, as the kind of the model does; see `albert_tf.answers`.

        Args:
            texts: a text each; of a tagger the words of each, or a text whose words spaces separate; of a span
                predictor the questions.
            seconds: where the task is on pairs the other text of each; of a span predictor the contexts.
            batch_size: rows that the model sees at a time.

        Raises:
            UserError: without a tokenizer, or for texts that are not what the model was trained on.
        """
        return answers.predict(self, texts, seconds, batch_size)


def load(
    path: str | os.PathLike,
    tokenizer: str = "",
    lower_case: bool | None = None,
    keep_accents: bool | None = None,
    depth: int = 0,
    other_tokenizer: bool = False,
) -> Loaded:
    """Loads a folder that training wrote, a .keras file, or a published checkpoint in any format that converts.

    A folder of sentence-transformers gives an AlbertSentenceEmbedder that pools as the folder says.

    Args:
        path: the folder, the .keras or .safetensors file, or a TensorFlow checkpoint's prefix.
        tokenizer: a vocabulary or folder to use in place of the tokenizer beside the model.
        lower_case: as a published vocabulary was made; None: see `read_tokenizer`.
        keep_accents: likewise.
        depth: layers to run its blocks through, more or fewer than it has; 0: those it has.
        other_tokenizer: whether `tokenizer` may be another than the model's own.

    Raises:
        UserError: there is no model, it is damaged or has no such depth, or the tokenizer is another than its own.

    >>> import tempfile
    >>> from albert_tf import AlbertClassifier, AlbertConfig
    >>> folder = Path(tempfile.mkdtemp())
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "film"]
    >>> written = (folder / "vocab.txt").write_text(chr(10).join(pieces))
    >>> AlbertClassifier(AlbertConfig.named("albert_tiny"), 2, labels=["dull", "fine"]).save(folder / "model.keras")
    >>> answers = load(folder).predict(["a fine film", "a film"])
    >>> sorted(answers[0]), sorted(answers[0]["probabilities"])
    (['label', 'probabilities'], ['dull', 'fine'])
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    modules = read_modules(folder)
    inside = folder / modules[0]["path"] if modules else folder
    model = formats.load(inside if modules and Path(path).is_dir() else path)
    model = at_depth(model, depth) if depth else model
    rules = lower_case, keep_accents
    own = read_tokenizer(tokenizer, *rules) if tokenizer else _tokenizer_beside(inside, *rules)
    if own is not None:
        own = check_rows(model, own, tokenizer or folder)
        if tokenizer and not other_tokenizer:
            check_own(model, own, tokenizer, inside, *rules)
        own = own.with_cls_last(getattr(model, "encoder", model).config.spec.last_token)
    is_others = (inside / "config.json").is_file() and not (inside / MODEL_FILE).is_file()
    if Path(path).is_dir() and is_others and (unknown := unknown_files(inside)):
        logging.warning("'%s' holds files that are not read: %s", inside, ", ".join(unknown))
    if is_of_sentence_transformers(folder):
        settings = read_settings(folder, inside)
    else:
        settings = {}
        _warn_of_limit(model, inside)
    if modules and isinstance(model, AlbertEncoder):
        model = make_embedder(model, folder, modules, settings)
    if default_prompt(settings) and not isinstance(model, (AlbertSentenceEmbedder, AlbertEncoder)):
        raise UserError(f"'{folder}' has a default_prompt_name, which is followed of embedders alone; remove it there")
    task = load_task(folder) or _named_classes(model, inside) | settings
    if isinstance(model, ClassesModel) and task.get("labels"):
        model.name_classes(model.num_classes, task["labels"])
    return Loaded(model, own, task)


def _tokenizer_beside(folder: Path, *rules: bool | None) -> Tokenizer | None:
    try:
        return tokenizer_in(folder, *rules)
    except UnknownTokenizer as error:
        logging.warning("loaded without a tokenizer: %s", error)
        return None


def _warn_of_limit(model: keras.Model, folder: Path) -> None:
    """Warns of a classifier's limit of length, which sentence-transformers follows, and transformers' pipelines not."""
    limit, most = tokenizer_limit(folder), getattr(model, "encoder", model).config.max_seq_length
    if 0 < limit < most and isinstance(model, (ClassesModel, AlbertRegressor)):
        logging.warning(
            "'%s': model_max_length %d is not followed, as by transformers' pipelines, and rows have up to %d tokens;"
            " pass max_seq_length to cut texts as sentence-transformers does",
            *(folder / "tokenizer_config.json", limit, most),
        )


def _named_classes(model: keras.Model, folder: Path) -> dict[str, Any]:
    """The names of the classes, where the configuration beside a checkpoint has them."""
    path = folder / "config.json"
    values = files.read_json(path) if path.is_file() and isinstance(model, ClassesModel) else {}
    names = model.labels or class_names(values, path, model.num_classes) if values else None
    return {"labels": list(names)} if names else {}
