"""Counts the parameters and operations of a configuration."""

import math
from typing import NamedTuple

from albert_tf.analysis import PAPER
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import Extension, RowCost, WeightLayer
from albert_tf.config.other_depths import at_depth
from albert_tf.layers.depth import plan
from albert_tf.layers.weights import has_bias, product_sizes
from tfrecords.base.errors import UserError


class Parameters(NamedTuple):
    """Numbers of trained parameters."""

    embeddings: int
    blocks: int
    pooler: int
    heads: int

    @property
    def encoder(self) -> int:
        return self.embeddings + self.blocks

    @property
    def total(self) -> int:
        return sum(self)


def parameters(config: AlbertConfig) -> Parameters:
    """Counts the parameters of a pre-trainer without building it.

    >>> parameters(AlbertConfig.named("albert_base_v2")).encoder
    11092992
    """
    hidden, embedding = config.hidden_size, config.embedding_size
    word_only = config.factorization == "word"
    width = hidden if word_only else embedding
    bias = int(config.use_bias)
    norm = 1 + (config.use_bias and config.norm == "layer_norm")
    projection = config.is_projected * (embedding * hidden + bias * (not word_only) * hidden)
    spec = config.spec
    rows = config.type_vocab_size * spec.has_types + spec.has_positions * config.max_position_embeddings
    embeddings = config.vocab_size * embedding + rows * width + norm * width * spec.has_norm + projection
    attention, feed_forward = (
        sum(
            inputs * units + has_bias(config, kind, name) * units
            for name, (inputs, units) in product_sizes(config, kind).items()
        )
        + norm * hidden
        for kind in ("attention", "feed_forward")
    )
    final_norm = ((config.norm_position == "pre") - (not config.first_norm)) * norm * hidden
    steps = plan(config)
    blocks = attention * len({s.attention for s in steps}) + feed_forward * len({s.feed_forward for s in steps})
    blocks += final_norm + sum(_of_extension(config, one) for one in config.extensions)
    embeddings += sum(_sizes(one.weight_layers(config, "embeddings", ())) for one in config.extensions)
    of_norm = norm if config.pooler_norm else 3
    masked_lm = config.word_transform * (hidden + of_norm) * width
    masked_lm += (config.use_bias or config.word_transform) * config.vocab_size
    masked_lm += (not config.tie_word_embeddings) * config.vocab_size * embedding
    heads = next(filter(None, (one.head_weights(config) for one in config.extensions)), masked_lm + 2 * hidden + 2)
    pooler = hidden * hidden + (norm if config.pooler_norm else 1) * hidden
    return Parameters(embeddings, blocks, pooler, heads)


def _of_extension(config: AlbertConfig, extension: Extension) -> int:
    count, steps = _sizes(extension.weight_layers(config, "encoder", ())), plan(config)
    for half in ("attention", "feed_forward"):
        runs = [getattr(step, half) for step in steps]
        for i in set(runs):
            count += _sizes(extension.weight_layers(config, half, tuple(n for n, run in enumerate(runs) if run == i)))
    return count


def _sizes(weight_layers: list[WeightLayer]) -> int:
    return sum(math.prod(weight.shape) for holder in weight_layers for weight in holder.weights.values())


def work_of(config: AlbertConfig, length: int, targets: int = 0) -> RowCost:
    """Returns the cost of a row of `length` tokens and, in permutation models, `targets` queries."""
    pairs = config.num_steps * length * length
    work = RowCost(length, config.num_steps, config.num_steps, pairs, pairs)
    for one in config.extensions:
        work = one.row_cost(config, targets, work)
    return work


def flops(config: AlbertConfig, length: int) -> int:
    """Counts the floating-point operations of a row's forward pass; a multiply-add counts as two.

    Matrix products and extensions' multiplications are counted; the rest would add about one per cent.

    >>> flops(AlbertConfig.named("albert_base_v2"), 512) // 10**9
    96
    """
    hidden, work = config.hidden_size, work_of(config, length)
    # On the way to an equilibrium, those of a row that takes longest.
    dense = 4 * hidden * hidden + (3 if config.feed_forward == "glu" else 2) * hidden * config.intermediate_size
    products = config.is_projected * config.embedding_size * hidden + work.steps * dense + work.products
    scores = 2 * hidden * work.steps * work.pairs // config.num_steps
    return 2 * (length * products + scores + hidden * hidden)


def cost_table(configs: dict[str, AlbertConfig], length: int = 512) -> str:
    """Returns a table of costs, with a line per configuration."""
    lines = [
        f"{'configuration':<22}{'layers':>7}{'hidden':>7}{'embed':>7}  {'sharing':<10}"
        f"{'encoder':>13}{'+ pooler':>13}{'+ heads':>13}{'paper':>7}{f'GFLOP at {length}':>15}"
    ]
    for name, config in configs.items():
        count, work = parameters(config), flops(config, length) / 1e9
        paper = f"{PAPER[name]}M" if name in PAPER else ""
        lines.append(
            f"{name:<22}{config.num_hidden_layers:>7}{config.hidden_size:>7}{config.embedding_size:>7}"
            f"  {config.sharing:<10}{count.encoder:>13,}{count.encoder + count.pooler:>13,}{count.total:>13,}"
            f"{paper:>7}{work:>15,.1f}"
        )
    return "\n".join(lines)


def print_costs(configs: dict[str, AlbertConfig], depth: int, length: int) -> None:
    """Prints the table; a nonzero `depth` replaces each configuration's number of layers."""
    configs = dict(configs)
    for name, config in configs.items() if depth else ():
        try:
            configs[name] = at_depth(config, depth)
        except UserError as error:
            raise UserError(f"{name}: {error}; --configs says which are counted") from error
    # The paper counts every model with ALBERT's vocabulary.
    configs |= {name: config.replace(vocab_size=30000) for name, config in configs.items() if name in PAPER}
    print(cost_table(configs, length))
