"""Exports of vectors: encoders, sentence embedders, and pre-trained models with their words for masks."""

import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.heads import mean_pool, pool, unit_length, vocabulary_logits
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder, AlbertSparseEmbedder, sparse_weights
from serving.exportable.base import Exportable
from serving.exportable.inputs import ExportSignature, InputFormat, InputFormats, Tensors, specs
from serving.exportable.samples import as_array, model_features, row_of, whole_words
from serving.inference.layers import ExportedNorm, dense, variable
from serving.lite.description import Answer
from tfrecords.answers.texts import default_prompt
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import TokenBatch, encode


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
        self, text: Tensor, truncate_left: Tensor | None = None, prompt_name: Tensor | None = None
    ) -> TokenBatch:
        """Converts strings [batch] to rows, each after the prompt named by `prompt_name`, or the default prompt."""
        if prompt_name is not None:
            text = tf.strings.join([self._prompt(prompt_name), text])
        elif prompt := default_prompt(self.options.task):
            text = tf.strings.join([prompt, text])
        return super().single(text, truncate_left)

    def _prompt(self, name: Tensor) -> Tensor:
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

    def answer_early(self, batch: TokenBatch, threshold: Tensor):
        exited = self._exited(batch, threshold)
        return self.vectors(exited, batch) | {"steps": exited["steps"]}

    @property
    def exits_early(self) -> bool:
        return self.options.exit_rule == "movement"

    def vectors(self, encoded: Tensors, batch: TokenBatch) -> Tensors:
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


def _of_tokens(encoded: Tensors, batch: TokenBatch) -> Tensor:
    return encoded["sequence_output"] * tf.cast(batch.mask, tf.float32)[:, :, tf.newaxis]


class PretrainerExportable(EncoderExportable, model=AlbertPretrainer):
    """Exports an AlbertPretrainer: `embedding` (mean over tokens), `pooled_output` float32 [batch, hidden_size]."""

    lite_kind = "words"
    lite_inputs = specs("positions", dtype=tf.int32, shape=(None, None))

    def add_head(self, model) -> None:
        super().add_head(model)
        head = model.masked_lm_head
        config = self.encoder.config
        self.word_layers: list[Any] = []
        if config.word_transform:
            act = config.pooler_act if config.pooler_norm else config.hidden_act
            self.word_layers = [dense(head.dense, tf.float32, act), ExportedNorm(head.layer_norm)]
        self.own_words = None if head.own_words is None else variable(head.own_words, tf.float32, "decoder")
        self.output_bias = None if head.output_bias is None else head.output_bias.value
        pair_head = getattr(model, "pair_head", None)
        self.pair_head = None if pair_head is None else dense(pair_head, tf.float32)
        tokenizer = self.options.tokenizer
        if self.framer is not None:
            self.piece_texts = tf.constant(tokenizer.piece_bytes) if tokenizer.kind == "bpe" else self.framer.pieces
        self.sparse_pooling = getattr(model, "pooling", "splade_max"), getattr(model, "activation", "relu")

    def answers(self, formats: InputFormats):
        table = super().answers(formats)
        if self.framer is None:
            positions = specs("masked_lm_positions", dtype=tf.int32, shape=(None, None))
            table["fill_mask"] = formats.single.to(self.fill_positions, positions)
        else:
            table["fill_mask"] = InputFormat(specs("text"), self.masked_text).to(self.fill_text)
        if self.pair_head is not None:
            table["sentence_order"] = formats.pair.to(self.sentence_order)
        return table

    @property
    def text_answers(self):
        return {"sparse": self.sparse}

    @property
    def lite_takes_pairs(self):
        return self.pair_head is not None

    @property
    def lite_signatures(self):
        vectors = ("embedding", "pooled_output") if self.gives_pooled_output else ("embedding",)
        order = {} if self.pair_head is None else {"sentence_order": ("order_logits",)}
        return {"serving_default": vectors, "fill_mask": ("logits",)} | order

    def lite_texts(self, tokenizer):
        first, second = map(str, whole_words(tokenizer, 2)[[0, -1]])
        mask = tokenizer.id_to_piece(tokenizer.mask_id)
        return [f"{first} {mask} {second}", f"{mask}", f"{second}, {mask} {first} {mask}"]

    def lite_row(self, framer, *texts):
        parts = encode(framer.tokenizer, re.split(framer.mask_pattern, texts[0]))
        row = row_of(framer.single(framer.masked(tf.RaggedTensor.from_row_lengths(parts, [parts.nrows()]))))
        return row | {"positions": np.flatnonzero(row["input_ids"] == framer.tokenizer.mask_id).astype(np.int32)[None]}

    def lite_answer(self, batch: TokenBatch, positions: Tensor):
        encoded = self.encode(batch)
        vectors = tf.gather(encoded["sequence_output"], positions, axis=1, batch_dims=1)
        answers = self.vectors(encoded, batch) | {"logits": self._masked_lm(vectors)}
        return answers | ({"order_logits": self.pair_head(encoded["pooled_output"])} if self.pair_head else {})

    def lite_expected(self, model, inputs, answers):
        positions = {"masked_lm_positions": inputs["positions"]}
        outputs = model(model_features(inputs) | positions, training=False)
        names = {"logits": "masked_lm_logits", "order_logits": "pair_logits"}
        found = {name: as_array(outputs[key]) for name, key in names.items() if name in answers}
        return super().lite_expected(model, inputs, answers) | found

    def sentence_order(self, batch: TokenBatch):
        """Returns `probabilities` float32 [batch, 2]: of the right order, and of swapped (in NSP: random) sentences."""
        return {"probabilities": tf.nn.softmax(self.pair_head(self.pool(batch)))}

    def fill_positions(self, batch: TokenBatch, masked_lm_positions: Tensor):
        """Returns the likeliest tokens at positions: `ids` int32, `probabilities` [batch, positions, top_k]."""
        # A position after its row means nothing, but must not fail the rest of the batch.
        positions = tf.clip_by_value(masked_lm_positions, 0, tf.shape(batch.mask)[1] - 1)
        vectors = tf.gather(self.encode(batch)["sequence_output"], positions, axis=1, batch_dims=1)
        best, ids = tf.math.top_k(self._of_pieces(tf.nn.softmax(self._masked_lm(vectors))), self.options.top_k)
        return {"ids": ids, "probabilities": best}

    def fill_text(self, batch: TokenBatch):
        """Returns each mask's likeliest tokens: `ids`, `pieces`, `texts`, `probabilities`, each [batch, masks, top_k].

        `texts` are decoded pieces. Rows with fewer masks are filled up with "", id 0 and probability 0.
        """
        masked = tf.equal(batch.input_ids, self.framer.tokenizer.mask_id)
        columns = tf.broadcast_to(tf.range(tf.shape(masked)[1]), tf.shape(masked))
        positions = tf.ragged.boolean_mask(columns, masked)
        present = tf.sequence_mask(positions.row_lengths())[:, :, tf.newaxis]
        best = self.fill_positions(batch, positions.to_tensor())
        texts = tf.gather(self.piece_texts, best["ids"])
        if self.framer.tokenizer.kind == "sentencepiece":
            texts = tf.strings.regex_replace(tf.strings.regex_replace(texts, "▁", " "), r"\A ", "")
        return {
            "ids": tf.where(present, best["ids"], 0),
            "pieces": tf.where(present, tf.gather(self.framer.pieces, best["ids"]), ""),
            "probabilities": tf.where(present, best["probabilities"], 0.0),
            "texts": tf.where(present, texts, ""),
        }

    def sparse(self, batch: TokenBatch):
        """Returns the weight of each vocabulary piece in a row, see `sparse_weights`.

        `ids` int32, `weights` float32 and, for texts, `terms` string, all [batch, terms], heaviest first.
        """
        weights = self._of_pieces(self.weights(self.encode(batch), batch))
        count = tf.reduce_max(tf.math.count_nonzero(weights, axis=1, dtype=tf.int32), axis=0)
        weights, ids = tf.math.top_k(weights, tf.maximum(count, 1))
        terms = {} if self.framer is None else {"terms": tf.where(weights > 0, tf.gather(self.framer.pieces, ids), "")}
        return {"ids": tf.where(weights > 0, ids, 0), "weights": weights} | terms

    def weights(self, encoded: Tensors, batch: TokenBatch) -> Tensor:
        """Returns float32 [batch, vocab_size]."""
        # Row by row: the logits of a whole batch take its tokens times the vocabulary.
        return tf.map_fn(
            lambda row: sparse_weights(self._masked_lm(row[0][tf.newaxis, : row[1]])[0], *self.sparse_pooling),
            (encoded["sequence_output"], batch.lengths),
            fn_output_signature=tf.TensorSpec([self.encoder.config.vocab_size], tf.float32),
        )

    def _of_pieces(self, words: Tensor) -> Tensor:
        return words if self.num_pieces == self.encoder.config.vocab_size else words[..., : self.num_pieces]

    def masked_text(self, text: Tensor) -> TokenBatch:
        """Converts strings [batch] with "[MASK]" or the vocabulary's own mask token to rows."""
        mask, pattern = self.framer.mask, self.framer.mask_pattern
        if pattern != re.escape(mask):
            text = tf.strings.regex_replace(text, pattern, mask)
        parts = tf.strings.split(text, mask)
        tokens = self.framer.masked(parts.with_values(self.framer.in_graph(parts.values)))
        return self.framed(self.framer.single(tokens), tokens)

    def _masked_lm(self, vectors: Tensor) -> Tensor:
        embeddings, config = self.encoder.embeddings, self.encoder.config
        words = tf.reshape(vectors, [-1, config.hidden_size])
        for layer in self.word_layers:
            words = layer(words)
        goes_back = config.factorization == "word" and embeddings.projection is not None
        projection = embeddings.projection.kernel if goes_back else None
        table = embeddings.words if self.own_words is None else self.own_words
        logits = vocabulary_logits(words, table, self.output_bias, projection)
        return tf.reshape(logits, [*tf.unstack(tf.shape(vectors)[:2]), config.vocab_size])

    @staticmethod
    def keras_answers(model, features):
        return EncoderExportable.keras_answers(model.encoder, features)


class SparseExportable(PretrainerExportable, model=AlbertSparseEmbedder):
    """Exports an AlbertSparseEmbedder: `embedding` float32 [batch, vocab_size], a weight for each row of the table."""

    has_dimensions = False
    lite_kind, lite_inputs, lite_signatures = "vectors", {}, {}

    def add_head(self, model) -> None:
        if model.query_length:
            raise UserError(
                "exports have no table for queries, and a server would read these as documents; to export the model "
                "for documents alone, list its transformer and SpladePooling in modules.json, without the Router"
            )
        super().add_head(model)

    def _vector_size(self, model) -> int:
        return model.dimensions

    def answers(self, formats: InputFormats):
        return EncoderExportable.answers(self, formats)

    def vectors(self, encoded: Tensors, batch: TokenBatch) -> Tensors:
        return {"embedding": self.weights(encoded, batch)}

    lite_texts, lite_row = EncoderExportable.lite_texts, EncoderExportable.lite_row

    def lite_answer(self, batch: TokenBatch):
        return self.answer(batch)

    def lite_expected(self, model, inputs, answers):
        return EncoderExportable.lite_expected(self, model, inputs, answers)

    @staticmethod
    def keras_answers(model, features):
        return {"embedding": as_array(model(features, training=False))}
