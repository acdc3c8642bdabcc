"""The result of `albert_tf.load`."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from albert_tf.checkpoints.sentence_folders import prompt_name_of
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading import answers, saving
from albert_tf.loading.preprocessing import FEATURES, Preprocessor
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from tfrecords.base.columns import is_one
from tfrecords.base.errors import UserError, check_counts, check_truths
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albert_tf.embeddings.index import Index


@dataclasses.dataclass(frozen=True, repr=False)
class Loaded:
    """A model with its tokenizer and task.

    Attributes:
        model: a Keras model of this library; one that was read from files is not compiled.
        tokenizer: the one that the model was trained with, or None.
        task: fine-tuning's task.json; of a published checkpoint, labels or prompts; otherwise {}.
        source: the path or name of the model; "" if it was in memory.
    """

    model: keras.Model
    tokenizer: Tokenizer | None
    task: dict[str, Any]
    source: str = ""

    @functools.cached_property
    def embedder(self) -> keras.Model:
        """The model itself; for an encoder or pre-trainer, an embedder with mean pooling."""
        if isinstance(self.model, (AlbertEncoder, AlbertPretrainer)):
            return AlbertSentenceEmbedder(encoder_of(self.model), normalize=False)
        return self.model

    def preprocessor(self, max_seq_length: int = 0, features: Sequence[str] = FEATURES) -> Preprocessor:
        """Makes the preprocessor that turns texts into the model's features.

        Args:
            max_seq_length: maximal tokens of a row; 0: the task's maximum, or else the encoder's.
            features: names of the features to return.

        Raises:
            UserError: there is no tokenizer, or the encoder takes no rows of that length.
        """
        if self.tokenizer is None:
            raise UserError("there is no tokenizer next to the model; give it: load(..., tokenizer='folder')")
        limit = getattr(self.model, "encoder", self.model).config.max_seq_length
        if max_seq_length != 0:
            check_counts(max_seq_length=max_seq_length)
        if max_seq_length > limit:
            raise UserError(f"max_seq_length={max_seq_length} is more than the model's {limit} positions")
        length = max_seq_length or min(self.task.get("max_seq_length") or limit, limit)
        return Preprocessor(self.tokenizer, length, features)

    def predict(self, texts: Any, seconds: Any = None, batch_size: int = 32) -> Any:
        """Returns a prediction for each text, or for one string, in the form that `albert_tf.loading.answers` lists.

        Args:
            texts: one string, or a list, array, pandas Series or pyarrow column of strings. A tagger takes lists of
                words, or texts that it splits at spaces; a span predictor takes questions.
            seconds: the second texts of pairs; for a span predictor the contexts.
            batch_size: rows that the model sees at a time.

        Raises:
            UserError: there is no tokenizer, or texts have another form than in training.
        """
        if not is_one(texts) and not is_one(seconds):
            return answers.predict(self, texts, seconds, batch_size)
        if not is_one(texts) or not (seconds is None or is_one(seconds)):
            raise UserError("of texts and seconds one is a string and the other is not; give two strings, or two lists")
        return answers.predict(self, [texts], None if seconds is None else [seconds], batch_size)[0]

    def encode(
        self,
        texts: Any,
        normalize: bool = True,
        batch_size: int = 32,
        show_progress: bool = False,
        prompt_name: str = "",
    ) -> np.ndarray:
        """Returns a vector for each text; for an encoder, the mean of the last hidden states.

        `texts` are strings, as in `predict`. `normalize` scales vectors to length 1. `prompt_name` selects the
        model's prompt that precedes each text; empty: the default.

        Returns:
            float32 [texts, dimensions]; for one string [dimensions].

        Raises:
            UserError: there is no tokenizer, the model makes no vectors, or `texts` are not strings.
        """
        check_truths(normalize=normalize, show_progress=show_progress)
        listed = [texts] if is_one(texts) else texts
        vectors = answers.embed(self, listed, batch_size, show_progress, prompt_name)
        if normalize:
            vectors = answers.unit(vectors)
        return vectors[0] if is_one(texts) else vectors

    def encode_query(self, texts: Any, **options: Any) -> np.ndarray:
        """Calls `encode` with the model's prompt for queries."""
        return self.encode(texts, prompt_name=prompt_name_of(self.task.get("prompts", {}), "query"), **options)

    def encode_document(self, texts: Any, **options: Any) -> np.ndarray:
        """Calls `encode` with the model's prompt for documents."""
        return self.encode(texts, prompt_name=prompt_name_of(self.task.get("prompts", {}), "document"), **options)

    def index(self, texts: Any, vectors: str = "float32", batch_size: int = 32, show_progress: bool = False) -> "Index":
        """Makes an index of texts; its `search(query)` returns the nearest texts with their similarities.

        `vectors` is "float32" or "int8", which takes less memory; its best results are rescored in
        float32. The model's prompt for documents is prepended. `albert_tf.open_index` opens a saved index.

        Raises:
            UserError: as for `encode`; or usearch is missing, which int8 and over 20,000 float32 vectors need.
        """
        # Few models are searched with.
        from albert_tf.embeddings.index import make_index

        return make_index(self, texts, vectors, batch_size, show_progress)

    def similarity(self, first: Any, second: Any, batch_size: int = 32) -> Any:
        """Compares texts or vectors by cosine, or by the measure that the model's files name.

        `first` and `second` are strings, as in `predict`, or vectors, [n, dimensions] and [m, dimensions].

        Returns:
            float32 [n, m]; for two single texts or vectors, one float.
        """
        sides = [self._as_vectors(side, batch_size) for side in (first, second)]
        scores = answers.similarity(self.task.get("similarity_fn_name", "cosine"), *(np.atleast_2d(s) for s in sides))
        return float(scores[0, 0]) if all(side.ndim == 1 for side in sides) else scores

    def _as_vectors(self, side: Any, batch_size: int) -> np.ndarray:
        is_numeric = hasattr(side, "dtype") and getattr(side.dtype, "kind", "") == "f"
        return np.asarray(side, "float32") if is_numeric else self.encode(side, False, batch_size)

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> Path:
        """Writes a folder from which `albert_tf.load`, `serving.export` and `--init_from` get an identical model.

        The folder has weights, tokenizer, task with labels, and a model card (README.md). It is written whole or not at
        all.

        Raises:
            UserError: the folder cannot be written, or is not empty; `overwrite` replaces a model in it.
        """
        return saving.save_folder(self, folder, overwrite)

    def export(self, folder: str | os.PathLike, **options: Any) -> Path:
        """Writes a SavedModel for TensorFlow Serving, as the command `serving.export` does; returns its folder.

        Args:
            folder: base path, in which each version is a numbered folder.
            **options: flags of the command, such as `compute`, `version` or `check`; `inputs` is "text" by default
                if there is a tokenizer.
        """
        # The one import upward, which a test allows: whoever calls this wants `serving`, and nobody else loads it.
        from serving.exporting import export_loaded

        return export_loaded(self, folder, **options)

    def __repr__(self) -> str:
        return saving.describe(self)
