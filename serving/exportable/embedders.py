import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.heads import mean_pool, pool, unit_length
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.exportable.base import Exportable
from serving.exportable.inputs import ExportSignature, FollowingBatch, InputFormat, specs
from serving.exportable.samples import as_array
from serving.inference.layers import dense
from serving.lite.description import Answer
from tfrecords.answers.texts import default_prompt
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import TokenBatch


class EncoderExportable(Exportable, model=AlbertEncoder):
    """Exports an AlbertEncoder: `embedding` float32 [batch, dimensions], the mean over tokens.

    With a pooler also `pooled_output`.
    """

    exit_kind, lite_kind = "states", "vectors"
    has_dimensions = True

    def add_head(self, model) -> None:
        self.poolings, self.projections, self.normalize = ["mean"], [], False
        self.gives_pooled_output = self.encoder.pooler is not None
        size = self._vector_size(model)
        if self.options.dimensions > size:
            raise UserError(
                f"--dimensions={self.options.dimensions} must be from 1 to the {size} numbers of the model's vectors"
            )
        self.dimensions = self.options.dimensions or size

    def _vector_size(self, model) -> int:
        return self.encoder.config.hidden_size

    def single(
        self, text: tf.Tensor, truncate_left: tf.Tensor | None = None, prompt_name: tf.Tensor | None = None
    ) -> TokenBatch:
        """Converts strings [batch] to rows, each after the prompt named by `prompt_name`, or the default prompt."""
        if prompt_name is not None:
            text = tf.strings.join([self._prompt(prompt_name), text])
        elif prompt := default_prompt(self.options.task):
            text = tf.strings.join([prompt, text])
        return super().single(text, truncate_left)

    def _prompt(self, name: tf.Tensor) -> tf.Tensor:
        prompts = {"": default_prompt(self.options.task)} | self.prompts
        matches = name[:, tf.newaxis] == tf.constant(list(prompts))
        message = f"prompt_name must be one of {', '.join(self.prompts)}, or empty for the default"
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(tf.reduce_any(matches, axis=1)), [message])]):
            return tf.gather(tf.constant(list(prompts.values())), tf.argmax(tf.cast(matches, tf.int32), axis=1))

    @property
    def prompts(self) -> dict[str, str]:
        return self.options.task.get("prompts", {})

    def with_options(self, format_: InputFormat, answer) -> ExportSignature:
        """Adds the input `prompt_name` and the output `prompt_names` [batch, prompts] for a model with prompts."""
        if not self.prompts or "text" not in format_.inputs:
            return super().with_options(format_, answer)
        format_ = InputFormat(format_.inputs | specs("prompt_name"), format_.read)
        signature = super().with_options(format_, answer)
        names = tf.constant(list(self.prompts))

        def function(**inputs):
            rows = [tf.size(inputs["text"]), 1]
            return signature.function(**inputs) | {"prompt_names": tf.tile(names[tf.newaxis], rows)}

        return signature._replace(function=function)

    @staticmethod
    def keras_answers(model, features):
        outputs = model(features, training=False)
        mean = as_array(mean_pool(outputs["sequence_output"], features["input_mask"]))
        return {"embedding": mean} | {name: as_array(outputs[name]) for name in ("pooled_output",) if name in outputs}

    def shortened(self, answers):
        if not self.options.dimensions:
            return answers
        vectors = answers["embedding"][:, : self.dimensions]
        if self.normalize:
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return answers | {"embedding": vectors}

    def answer(self, batch: TokenBatch):
        return self.vectors(self.encode(batch), batch)

    lite_takes_pairs = False

    def lite_row(self, framer, *texts):
        return super().lite_row(framer, *(default_prompt(self.options.task) + text for text in texts))

    def lite_description(self):
        task = self.options.task
        return Answer(
            self.lite_kind,
            dimensions=self.dimensions,
            prompts=dict(self.prompts),
            default_prompt=default_prompt(task),
            similarity=task.get("similarity_fn_name", "cosine"),
        )

    def answer_early(self, batch: TokenBatch, threshold: tf.Tensor):
        exited = self._exited(batch, threshold)
        return self.vectors(exited, batch) | {"steps": exited["steps"]}

    def answer_with_memory(self, batch: TokenBatch, **features: tf.Tensor):
        following = FollowingBatch(*batch, features)
        encoded = self.encode(following)
        return self.vectors(encoded, following) | {"sequence_output": _of_tokens(encoded, batch)}

    @property
    def exits_early(self) -> bool:
        return self.options.exit_rule == "movement"

    def vectors(self, encoded: dict[str, tf.Tensor], batch: TokenBatch) -> dict[str, tf.Tensor]:
        sequence = encoded["sequence_output"]
        first = tf.gather(sequence, self.summaries(batch), axis=1, batch_dims=1) if "cls" in self.poolings else None
        pooled = [pool(sequence, batch.mask, first, name) for name in self.poolings]
        vectors = pooled[0] if len(pooled) == 1 else tf.concat(pooled, axis=-1)
        for projection in self.projections:
            vectors = projection(vectors)
        if self.options.dimensions:
            vectors = vectors[:, : self.dimensions]
        vectors = unit_length(vectors) if self.normalize else vectors
        answers = {"embedding": vectors[:, : self.dimensions]}
        return answers | ({"pooled_output": encoded["pooled_output"]} if self.gives_pooled_output else {})

    @property
    def text_answers(self):
        return {"tokens": self.tokens}

    def tokens(self, batch: TokenBatch):
        """Returns `sequence_output` float32 [batch, length, hidden_size], 0 at padding.

        For texts also `pieces` string [batch, length] and `lengths`.
        """
        sequence = _of_tokens(self.encode(batch), batch)
        described = {} if self.framer is None else self.framer.describe(batch)
        pieces = {name: value for name, value in described.items() if name in ("lengths", "pieces")}
        return {"sequence_output": sequence} | pieces


class EmbedderExportable(EncoderExportable, model=AlbertSentenceEmbedder):
    """Exports an AlbertSentenceEmbedder: `embedding` float32 [batch, dimensions]."""

    def add_head(self, model) -> None:
        super().add_head(model)
        self.poolings, self.normalize, self.gives_pooled_output = model.poolings, model.normalize, False
        self.projections = [
            dense(layer, tf.float32, keras.activations.serialize(layer.activation)) for layer in model.projections
        ]

    def _vector_size(self, model) -> int:
        return model.dimensions

    @staticmethod
    def keras_answers(model, features):
        return {"embedding": as_array(model(features, training=False))}


def _of_tokens(encoded: dict[str, tf.Tensor], batch: TokenBatch) -> tf.Tensor:
    return encoded["sequence_output"] * tf.cast(batch.mask, tf.float32)[:, :, tf.newaxis]
