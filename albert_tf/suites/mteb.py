"""Adapts models to the benchmark library `mteb` (2.x)."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.index import identity
from albert_tf.loading import load


class MtebModel:
    """Wraps a model of this library as mteb's `EncoderProtocol`; `revision` and `options` are ignored."""

    def __init__(self, model_name: str, revision: str | None = None, **options: Any):
        self.name, self.loaded = model_name, load(model_name)

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], *, prompt_type: Any = None, batch_size: int = 32,
        **options: Any,
    ) -> np.ndarray:  # fmt: skip
        """Returns a vector for each text in mteb's batches, float32 [texts, dimensions].

        `prompt_type` ("query", "document", "passage" or None) selects the model's prompt.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        role = getattr(prompt_type, "value", prompt_type)
        encoders = {"query": self.loaded.encode_query, None: self.loaded.encode}
        return encoders.get(role, self.loaded.encode_document)(texts, normalize=False, batch_size=batch_size)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        return self.loaded.similarity(*map(_array, (embeddings1, embeddings2)))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        pairs = zip(*map(_array, (embeddings1, embeddings2)))
        return np.array([self.loaded.similarity(one[None], other[None])[0, 0] for one, other in pairs], "float32")

    @functools.cached_property
    def mteb_model_meta(self) -> Any:
        from mteb.models.model_meta import ModelMeta

        name = self.name if "/" in self.name.strip("/.") else f"albert-tf/{self.name}"
        # mteb takes results that it has of the same name and revision, so that other weights are another revision.
        return ModelMeta.create_empty({"name": name, "revision": identity(self.loaded)})


def _array(vectors: Any) -> np.ndarray:
    return np.asarray(vectors, "float32")
