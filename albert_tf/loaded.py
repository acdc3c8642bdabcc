"""The result of `albert_tf.load`."""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading import answers, saving
from albert_tf.loading.preprocessing import FEATURES, Preprocessor
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from tfrecords.answers.texts import TextModel, no_tokenizer, no_vectors
from tfrecords.base.errors import UserError, check_counts
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albert_tf.embeddings.index import Index


@dataclasses.dataclass(frozen=True, repr=False)
class Loaded(TextModel):
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
    _looks_up: bool = dataclasses.field(default=False, compare=False)
    _process: int = dataclasses.field(default_factory=os.getpid, init=False, compare=False)

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
            raise no_tokenizer()
        limit = getattr(self.model, "encoder", self.model).config.max_seq_length
        if max_seq_length != 0:
            check_counts(max_seq_length=max_seq_length)
        if max_seq_length > limit:
            raise UserError(f"max_seq_length={max_seq_length} is more than the model's {limit} positions")
        length = max_seq_length or min(self.task.get("max_seq_length") or limit, limit)
        return Preprocessor(self.tokenizer, length, features)

    def answers(self, texts: Any, seconds: Any, batch_size: int) -> Any:
        self._check_process()
        return answers.predict(self, texts, seconds, batch_size)

    def vectors(self, texts: Any, batch_size: int, show_progress: bool, prompt_name: str) -> np.ndarray:
        self._check_process()
        if self._looks_up:
            return answers.look_up(self, texts, prompt_name)
        return answers.embed(self, texts, batch_size, show_progress, prompt_name)

    def encode_query(self, texts: Any, **options: Any) -> np.ndarray:
        """Calls `encode` with the model's prompt for queries; if it has a table for queries, looks up each token."""
        self._check_process()
        has_table = getattr(self.model, "query_length", 0)
        asked = dataclasses.replace(self, _looks_up=True) if has_table else self
        return TextModel.encode_query(asked, texts, **options)

    def _check_process(self) -> None:
        # TensorFlow would wait for ever for threads that are the parent's.
        if os.getpid() != self._process:
            raise UserError(
                "this process was forked after the model was loaded, and TensorFlow cannot compute in it; load the "
                "model in each worker (gunicorn: without --preload)"
            )

    @property
    def dimensions(self) -> int:
        if not hasattr(self.embedder, "dimensions"):
            raise no_vectors(type(self.embedder).__name__)
        return self.embedder.dimensions

    def identity(self) -> str:
        """Returns a SHA-256 of all that determines vectors: weights, depth, pooling, tokenizer, prompts."""
        model, preprocess, _ = self.embedder, self.preprocessor(), self.dimensions
        names = ("prompts", "default_prompt_name", "similarity_fn_name")
        said = {name: self.task[name] for name in names if self.task.get(name)}
        said |= {"truncate_dim": model.truncate_dim} if model.truncate_dim else {}
        said |= {
            "pooling": model.pooling,
            "tokenizer": preprocess.tokenizer.sha256,
            "length": preprocess.max_seq_length,
        }
        said |= {"config": encoder_of(model).config.to_dict()}
        state = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
        for variable in model.weights:
            state.update(np.asarray(variable).tobytes())
        return state.hexdigest()

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

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> Path:
        """Writes a folder from which `albert_tf.load`, `serving.export` and `--init_from` get an identical model.

        The folder has weights, tokenizer, task with labels, and a model card (README.md). It is written whole or not at
        all.

        Raises:
            UserError: the folder cannot be written, or is not empty; `overwrite` replaces a model in it.
        """
        return saving.save_folder(self, folder, overwrite)

    def export(self, folder: str | os.PathLike, **options: Any) -> Path:
        """Writes a SavedModel or, by `engine="litert"`, a LiteRT file, as `serving.export` does; returns its folder.

        Args:
            folder: base path, in which each version is a numbered folder.
            **options: flags of the command, such as `engine`, `compute` or `version`; `inputs` is "text" by default
                if there is a tokenizer.
        """
        # The one import upward, which a test allows: whoever calls this wants `serving`, and nobody else loads it.
        from serving.exporting import export_loaded

        return export_loaded(self, folder, **options)

    def __repr__(self) -> str:
        return saving.describe(self)
