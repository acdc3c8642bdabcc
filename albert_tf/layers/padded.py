"""The Keras side of both protocols: kernels that are layers, and rows in a padded rectangle."""

from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.extension import Weights
from albert_tf.layers import Tensor
from albert_tf.layers.block import MASKED_SCORE, Attention, Kernels, Pairs, Rows
from albert_tf.layers.dense import activation
from albert_tf.layers.depth import Step, of_step, visit_of
from albert_tf.layers.dropout import dropout, site_seed
from albert_tf.layers.features import summary_tokens, token_positions
from albert_tf.layers.halves import Half

# Numbers of dropouts: of the parts of a long row, beyond those of all steps; of a step's third one, short of those.
_PART_SITE, _INSIDE_SITE = 1 << 22, 1 << 17


class LayerKernels(Kernels):
    """Kernels that are Keras layers, made for one call.

    Args:
        config: of the encoder.
        halves: by kind and number.
        weights: of its extensions.
        dtype: of its computations.
        seed: uint32 [2] that the dropout masks follow from; None outside training.
        probabilities: a list that gets the attention probabilities of every step; None: nobody wants them.
    """

    def __init__(
        self,
        config: AlbertConfig,
        halves: dict[tuple[str, int], Half],
        weights: dict[str, Weights],
        dtype: str,
        seed: Tensor = None,
        probabilities: list[Tensor] | None = None,
    ):
        self.config, self.halves, self.seed, self.probabilities = config, halves, seed, probabilities
        self.activation, self.is_pre = activation(config.hidden_act), config.norm_position == "pre"
        # Unscaled products of wide heads may pass a float16's 65504.
        scale = config.head_size**-0.5
        self.scale = (scale, 1.0) if dtype == "float16" else (1.0, scale)
        self._adapting = [(one, weights[one.name]) for one in config.extensions]
        self._drops_inside = config.spec.drops_inside

    def open(self, half: str, which: Step, hidden: Tensor) -> Tensor:
        return self._half(half, which).layer_norm(hidden) if self.is_pre else hidden

    def query_key_value(self, which: Step, step: Tensor, inputs: Tensor, attended: Tensor) -> tuple[Tensor, ...]:
        query = self.product("attention", "query", which, step, inputs)
        query = query if self.scale[0] == 1 else query * self.scale[0]
        return query, *(self.product("attention", name, which, step, attended) for name in ("key", "value"))

    def dense(self, name: str, which: Step, step: Tensor, inputs: Tensor) -> Tensor:
        product = self.product("feed_forward", name, which, step, inputs)
        return self.activation(product) if name == "intermediate" else product

    def close(self, half: str, which: Step, step: Tensor, inside: Tensor, residual: Tensor) -> Tensor:
        rate = self.config.hidden_dropout_prob
        if half == "feed_forward" and self._drops_inside:
            inside = dropout(inside, rate, self._site(step, _INSIDE_SITE))
        product, scale = self.product(half, "output", which, step, inside), self._half(half, which).branch_scale
        product = product if scale == 1 else product * scale
        product = dropout(product, rate, self._site(step, 1 if half == "attention" else 2))
        return residual + product if self.is_pre else self._half(half, which).layer_norm(residual, product)

    def weigh(self, scores: Tensor, step: Tensor, part: Tensor = None) -> Tensor:
        probabilities = ops.cast(ops.softmax(ops.cast(scores, "float32"), axis=-1), scores.dtype)
        if self.probabilities is not None:
            self.probabilities.append(probabilities)
        site = 0 if part is None else _PART_SITE * (part + 1)
        return dropout(probabilities, self.config.attention_probs_dropout_prob, self._site(step, site))

    def _half(self, half: str, which: Step) -> Half:
        return self.halves[half, getattr(which, half)]

    def product(self, half: str, name: str, which: Step, step: Tensor, inputs: Tensor) -> Tensor:
        """Returns the product of a dense layer of a half, by its name, before any activation function."""
        owner, product = (half, getattr(which, half)), self._half(half, which).product(name)(inputs)
        for extension, weights in self._adapting:
            if (pair := extension.low_rank(weights, owner, name)) is not None:
                visit = visit_of(self.config, weights.steps[owner], step)
                a, b = (ops.cast(of_step(one, visit), inputs.dtype) for one in pair)
                product = product + ops.matmul(ops.matmul(inputs, a), b)
        return product

    def _site(self, step: Tensor, site: Tensor) -> Tensor:
        return site_seed(site_seed(self.seed, 3 * step), site)


def attention_bias(input_mask: Tensor, sequence_ids: Tensor, dtype: str) -> Tensor:
    """Makes what is added to every attention score: 0 where a token attends to another, MASKED_SCORE elsewhere.

    Args:
        input_mask: int32 [batch, sequence], 0 for padding; or None.
        sequence_ids: int32 [batch, sequence], the number of the packed sequence a token belongs to; or None.
        dtype: dtype of the result.

    Returns:
        [batch, 1, 1, sequence], or [batch, 1, sequence, sequence] for packed rows, or None where all may attend.
    """
    allowed = None
    if input_mask is not None:
        allowed = ops.cast(input_mask, "bool")[:, None, None, :]
    if sequence_ids is not None:
        same = ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :])
        allowed = same if allowed is None else ops.logical_and(same, allowed)
    if allowed is None:
        return None
    return ops.cast(ops.logical_not(allowed), dtype) * ops.cast(MASKED_SCORE, dtype)


class RectangleRows(Rows):
    """Rows of equal length, one after another.

    Args:
        weights: float32 [rows, length], 1 for tokens that count and 0 for padding.
    """

    def __init__(self, weights: Tensor):
        self.weights = ops.cast(weights, "float32")

    def sum(self, values: Tensor) -> Tensor:
        shape = (*values.shape[:-1], *ops.shape(self.weights))
        return ops.sum(ops.reshape(values, shape) * self.weights, axis=-1)

    def spread(self, values: Tensor) -> Tensor:
        return ops.reshape(ops.broadcast_to(values[:, None], ops.shape(self.weights)), (-1,))


class PaddedRows(RectangleRows):
    """The rows of a batch, padded to one length.

    Args:
        config: of the encoder.
        features: of the batch, by the names used here.
        attention: how heads attend.
        dtype: of the encoder's computations.
        seed: uint32 [2] that dropout follows from; None outside training.
        draw_seed: the same where what is drawn for a batch of training is to be drawn; else None.

    Attributes:
        length: tokens a row.
        keys: what is attended to: the same number, unless an extension adds memory.
        positions: int32 [batch, length]; None: 0, 1, ... in all rows.
        pairs: what attention knows of the batch.
    """

    def __init__(
        self,
        config: AlbertConfig,
        features: dict[str, Tensor],
        attention: Attention,
        dtype: str,
        seed: Tensor = None,
        draw_seed: Tensor = None,
    ):
        self.config, self.features, self.attention = config, features, attention
        self.dtype, self.seed, self.draw_seed = dtype, seed, draw_seed
        self.length = self.keys = ops.shape(features["input_ids"])[1]
        self.positions = token_positions(features, config)
        bias = attention_bias(features.get("input_mask"), features.get("sequence_ids"), dtype)
        self.pairs = Pairs(bias, {})

    @property
    def weights(self) -> Tensor:  # type: ignore[override]
        """Returns float32 [batch, length], 1 for tokens and 0 for padding."""
        mask = self.features.get("input_mask")
        return ops.cast(ops.ones_like(self.features["input_ids"]) if mask is None else mask, "float32")

    def token_positions(self) -> Tensor:
        """Returns int32 [batch or 1, length]."""
        return ops.arange(self.length)[None] if self.positions is None else self.positions

    def columns(self) -> Tensor:
        """Returns int32 [1, length]."""
        return ops.arange(self.length)[None]

    def add_feature(self, name: str, values: Tensor) -> None:
        self.pairs.features[name] = (values, values)

    def attend(self, projected: tuple, step: Tensor, which: Step, only_summary: bool) -> Tensor:
        query, key, value = projected
        query, key, value = self._heads(query, self.length), self._heads(key, self.keys), self._heads(value, self.keys)
        contexts = self.attention(query, key, value, self.pairs, step, which)
        contexts = ops.reshape(ops.transpose(contexts, (0, 2, 1, 3)), (-1, self.config.hidden_size))
        return self.summary_tokens(contexts) if only_summary else contexts

    def _heads(self, flat: Tensor, length: Tensor) -> Tensor:
        split = ops.reshape(flat, (-1, length, self.config.num_attention_heads, self.config.head_size))
        return ops.transpose(split, (0, 2, 1, 3))

    def words(self, words: Tensor) -> Tensor:
        """Returns word embeddings [batch, length, width] and those of what an extension adds to a row."""
        return words

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return self.summaries(self.rectangle(hidden))

    def summaries(self, rectangle: Tensor) -> Tensor:
        """Returns what stands for each row: [batch, width], or [batch, n, width] of packed sequences."""
        return summary_tokens(rectangle, self.features, self.config)

    def rectangle(self, values: Tensor) -> Tensor:
        return ops.reshape(values, (-1, self.length, *values.shape[1:]))

    def restore(self, of_rows: Tensor) -> Tensor:
        return of_rows

    def content(self, rectangle: Tensor) -> Tensor:
        """Returns the columns of [batch, length, ...] that are the batch's own."""
        return rectangle

    def probabilities(self, of_step: Tensor) -> Tensor:
        """Returns the attention probabilities of the batch's own tokens."""
        return of_step

    def outputs(self, rectangle: Tensor) -> dict[str, Tensor]:
        """Returns what the encoder returns of the last [batch, length, hidden_size]."""
        return {"sequence_output": rectangle}
