"""A vector for each row and each token; of a pre-trained model also words for masks and the order of two texts."""

import re

import keras
import tensorflow as tf

from albert_tf.checkpoints.sentence_folders import default_prompt
from albert_tf.models.heads import pool, unit_length, vocabulary_logits
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.exportable.base import Exportable, ExportOptions, FollowingBatch, Ways
from serving.exportable.ways import Signature, Way, specs
from serving.inference import InferenceEncoder
from serving.inference.layers import LayerNorm, dense
from tfrecords.base.errors import UserError
from tfrecords.framing import TokenBatch


class EmbedderExportable(Exportable):
    """An AlbertSentenceEmbedder, or an AlbertEncoder without a head, whose tokens are averaged.

    `embedding` float32 [batch, dimensions], hidden_size unless fewer are asked, and `pooled_output` (tanh layer over
    [CLS]) where a bare encoder has it.
    """

    exit_kind = "states"

    def __init__(self, model, options: ExportOptions, encoder: InferenceEncoder | None = None):
        super().__init__(model, options, encoder)
        is_embedder = isinstance(model, AlbertSentenceEmbedder)
        self.poolings = model.poolings if is_embedder else ["mean"]
        layers = model.projections if is_embedder else []
        self.projections = [dense(layer, tf.float32, keras.activations.serialize(layer.activation)) for layer in layers]
        self.normalize = is_embedder and model.normalize
        self.gives_pooled_output = not is_embedder and self.encoder.pooler is not None
        size = model.dimensions if is_embedder else self.encoder.config.hidden_size
        self.dimensions = self._dimensions_of(options.dimensions, size)

    def single(
        self, text: tf.Tensor, truncate_left: tf.Tensor | None = None, prompt_name: tf.Tensor | None = None
    ) -> TokenBatch:
        """Reads strings [batch], each after the default prompt, or that of its `prompt_name` where one is given."""
        if prompt_name is not None:
            text = tf.strings.join([self._prompt(prompt_name), text])
        elif prompt := default_prompt(self.options.task):
            text = tf.strings.join([prompt, text])
        return super().single(text, truncate_left)

    def _prompt(self, name: tf.Tensor) -> tf.Tensor:
        """The prompts of these names, string [batch]; "" is the default one's."""
        prompts = {"": default_prompt(self.options.task)} | self.prompts
        matches = name[:, tf.newaxis] == tf.constant(list(prompts))
        message = f"prompt_name must be one of {', '.join(self.prompts)}, or empty for the default"
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(tf.reduce_any(matches, axis=1)), [message])]):
            return tf.gather(tf.constant(list(prompts.values())), tf.argmax(tf.cast(matches, tf.int32), axis=1))

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts that a request may name."""
        return self.options.task.get("prompts", {})

    def with_options(self, default: Way) -> Signature:
        """See `Exportable`: where there are prompts, texts have a `prompt_name`, string [batch].

        Their names are an output, `prompt_names`, string [batch, prompts].
        """
        if not self.prompts or self.takes_pairs:
            return super().with_options(default)
        signature = super().with_options(Way(default.inputs | specs("prompt_name"), default.read))
        names = tf.constant(list(self.prompts))

        def function(**inputs):
            rows = [tf.size(inputs["text"]), 1]
            return signature.function(**inputs) | {"prompt_names": tf.tile(names[tf.newaxis], rows)}

        return signature._replace(function=function)

    def _dimensions_of(self, asked: int, size: int) -> int:
        if asked > size:
            raise UserError(f"--dimensions={asked} must be from 1 to the {size} numbers of the model's vectors")
        return asked or size

    def answer(self, batch: TokenBatch):
        return self._of(self.encode(batch), batch)

    def answer_early(self, batch: TokenBatch, threshold: tf.Tensor):
        """Gives the outputs of rows that leave once their tokens move little, and their `steps` int32 [batch]."""
        exited = self._exited(batch, threshold)
        return self._of(exited, batch) | {"steps": exited["steps"]}

    def answer_with_memory(self, batch: TokenBatch, **features: tf.Tensor):
        """Gives the outputs of rows that follow others, and `sequence_output`, as `tokens` does."""
        following = FollowingBatch(*batch, features)
        encoded = self.encode(following)
        return self._of(encoded, following) | {"sequence_output": _of_tokens(encoded, batch)}

    @property
    def exits_early(self) -> bool:
        return self.options.exit_rule == "movement"

    def _of(self, encoded: dict[str, tf.Tensor], batch: TokenBatch) -> dict[str, tf.Tensor]:
        sequence = encoded["sequence_output"]
        first = tf.gather(sequence, self.summaries(batch), axis=1, batch_dims=1) if "cls" in self.poolings else None
        pooled = [pool(sequence, batch.mask, first, name) for name in self.poolings]
        vectors = pooled[0] if len(pooled) == 1 else tf.concat(pooled, axis=-1)
        for projection in self.projections:
            vectors = projection(vectors)
        vectors = vectors[:, : self.dimensions]
        answers = {"embedding": unit_length(vectors) if self.normalize else vectors}
        return answers | ({"pooled_output": encoded["pooled_output"]} if self.gives_pooled_output else {})

    def answers(self, ways: Ways):
        return super().answers(ways) | {"tokens": ways.single.to(self.tokens)}

    def tokens(self, batch: TokenBatch):
        """Gives `sequence_output` float32 [batch, length, hidden_size], 0 at padding.

        Of texts it gives `pieces` string [batch, length] and `lengths` int32 [batch], too.
        """
        sequence = _of_tokens(self.encode(batch), batch)
        described = {} if self.framer is None else self.framer.describe(batch)
        pieces = {name: value for name, value in described.items() if name in ("lengths", "pieces")}
        return {"sequence_output": sequence} | pieces


class PretrainerExportable(EmbedderExportable):
    """An AlbertPretrainer: `embedding`, the mean over the tokens, and `pooled_output`, float32 [batch, hidden_size].

    Beside them words for masks, weights of terms, and the order of two texts.
    """

    def __init__(self, model: AlbertPretrainer, options: ExportOptions, encoder: InferenceEncoder | None = None):
        super().__init__(model, options, encoder)
        head = model.masked_lm_head
        self.masked_lm_dense = dense(head.dense, tf.float32, self.encoder.config.hidden_act)
        self.masked_lm_norm = LayerNorm(head.layer_norm)
        self.output_bias = head.output_bias.value
        self.pair_head = None if model.pair_head is None else dense(model.pair_head, tf.float32)

    def answers(self, ways: Ways):
        table = super().answers(ways)
        del table["tokens"]
        if self.framer is None:
            positions = specs("masked_lm_positions", dtype=tf.int32, shape=(None, None))
            table["fill_mask"] = ways.single.to(self.fill_positions, positions)
        else:
            table["fill_mask"] = Way(specs("text"), self.masked_text).to(self.fill_text)
        table["sparse"] = ways.single.to(self.sparse)
        if self.pair_head is not None:
            table["sentence_order"] = ways.pair.to(self.sentence_order)
        return table

    def sentence_order(self, batch: TokenBatch):
        """Gives `probabilities` float32 [batch, 2] of the pair task's labels: 1 is swapped, or for NSP random."""
        return {"probabilities": tf.nn.softmax(self.pair_head(self.pool(batch)))}

    def fill_positions(self, batch: TokenBatch, masked_lm_positions: tf.Tensor):
        """Gives the likeliest pieces at given positions: `ids` int32 and `probabilities` [batch, positions, top_k]."""
        # A position behind its row means nothing, but must not fail the rest of the batch.
        positions = tf.clip_by_value(masked_lm_positions, 0, tf.shape(batch.mask)[1] - 1)
        vectors = tf.gather(self.encode(batch)["sequence_output"], positions, axis=1, batch_dims=1)
        best, ids = tf.math.top_k(tf.nn.softmax(self._masked_lm(vectors)), self.options.top_k)
        return {"ids": ids, "probabilities": best}

    def fill_text(self, batch: TokenBatch):
        """Gives for each "[MASK]" of a text its likeliest `pieces` (string) and `probabilities`, [batch, masks, top_k].

        Also `ids` int32 and `texts`, what pieces are without marks of words. RoBERTa's masks are "<mask>". Rows with
        fewer masks than the fullest are filled up with empty pieces of id and probability 0.
        """
        masked = tf.equal(batch.input_ids, self.framer.tokenizer.mask_id)
        columns = tf.broadcast_to(tf.range(tf.shape(masked)[1]), tf.shape(masked))
        positions = tf.ragged.boolean_mask(columns, masked)
        present = tf.sequence_mask(positions.row_lengths())[:, :, tf.newaxis]
        best = self.fill_positions(batch, positions.to_tensor())
        flat = tf.reshape(best["ids"], [-1, 1])
        texts = self.decoder(flat, tf.ones_like(flat[:, 0]), tf.zeros_like(flat[:, 0], tf.bool))
        return {
            "ids": tf.where(present, best["ids"], 0),
            "pieces": tf.where(present, tf.gather(self.framer.pieces, best["ids"]), ""),
            "probabilities": tf.where(present, best["probabilities"], 0.0),
            "texts": tf.where(present, tf.reshape(texts, tf.shape(best["ids"])), ""),
        }

    def sparse(self, batch: TokenBatch):
        """Gives each piece of the vocabulary its weight for a row: over the tokens the largest log(1 + relu(logit)).

        So SPLADE's second version has it (arXiv:2109.10086, equation 2). `ids` int32 and `weights` float32
        [batch, terms], heaviest first; a row with fewer terms than the fullest is filled up with weights of 0. Of texts
        also `terms`, the pieces, string [batch, terms].
        """
        sequence = self.encode(batch)["sequence_output"]
        # Row by row: the logits of a whole batch take its tokens times the vocabulary.
        largest = tf.map_fn(
            lambda row: tf.reduce_max(self._masked_lm(row[0][tf.newaxis, : row[1]])[0], axis=0),
            (sequence, batch.lengths),
            fn_output_signature=tf.TensorSpec([self.encoder.config.vocab_size], tf.float32),
        )
        weights = tf.math.log1p(tf.nn.relu(largest))
        count = tf.reduce_max(tf.math.count_nonzero(weights, axis=1, dtype=tf.int32), axis=0)
        weights, ids = tf.math.top_k(weights, tf.maximum(count, 1))
        terms = {} if self.framer is None else {"terms": tf.where(weights > 0, tf.gather(self.framer.pieces, ids), "")}
        return {"ids": tf.where(weights > 0, ids, 0), "weights": weights} | terms

    def masked_text(self, text: tf.Tensor) -> TokenBatch:
        """Reads strings [batch] with the mask's id where they say [MASK], or whatever the vocabulary calls it."""
        mask, pattern = self.framer.mask, self.framer.mask_pattern
        if pattern != re.escape(mask):
            text = tf.strings.regex_replace(text, pattern, mask)
        parts = tf.strings.split(text, mask)
        tokens = self.framer.masked(parts.with_values(self.framer.in_graph(parts.values)))
        return self.framed(self.framer.single(tokens), tokens)

    def _masked_lm(self, vectors: tf.Tensor) -> tf.Tensor:
        """The Keras head on the word embeddings that the encoder holds already: [batch, n, hidden_size] to logits."""
        embeddings, config = self.encoder.embeddings, self.encoder.config
        words = self.masked_lm_norm(self.masked_lm_dense(tf.reshape(vectors, [-1, config.hidden_size])))
        goes_back = config.factorization == "word" and embeddings.projection is not None
        projection = embeddings.projection.kernel if goes_back else None
        logits = vocabulary_logits(words, embeddings.words, self.output_bias, projection)
        return tf.reshape(logits, [*tf.unstack(tf.shape(vectors)[:2]), config.vocab_size])


def _of_tokens(encoded: dict[str, tf.Tensor], batch: TokenBatch) -> tf.Tensor:
    """A row's vectors, 0 at padding."""
    return encoded["sequence_output"] * tf.cast(batch.mask, tf.float32)[:, :, tf.newaxis]
