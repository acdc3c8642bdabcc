"""Exact parameter and floating-point-operation counts of a configuration, and the paper's Table 1 beside them."""

from typing import NamedTuple

from albert_tf.config import AlbertConfig
from albert_tf.extensions.window import pairs
from albert_tf.layers.depth import Step, plan, segments
from albert_tf.published import PAPER


class Parameters(NamedTuple):
    """Counts trained numbers: embeddings with their projection, blocks, pooler, masked-word and pair heads."""

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


class Flops(NamedTuple):
    """Counts the floating-point operations of one row's forward pass; a multiply and an add are two.

    Matrix products, as is usual, and what streams are read and written by; biases, norms, activations and softmax add
    about one per cent.
    """

    projection: int
    attention_dense: int
    attention_scores: int
    feed_forward: int
    pooler: int
    depth: int

    @property
    def total(self) -> int:
        return sum(self)


def parameters(config: AlbertConfig) -> Parameters:
    """Counts the parameters of a pre-trainer of a configuration, without building it.

    >>> parameters(AlbertConfig.named("albert_base_v2")).encoder
    11092992
    """
    hidden, inside, embedding = config.hidden_size, config.intermediate_size, config.embedding_size
    word_only = config.factorization == "word"
    width = hidden if word_only else embedding
    bias, inner_products = int(config.use_bias), 2 if config.feed_forward == "glu" else 1
    norm = 1 + (config.use_bias and config.norm == "layer_norm")
    projection = config.is_projected * (embedding * hidden + bias * (not word_only) * hidden)
    rows = config.type_vocab_size + (config.position_type == "absolute") * config.max_position_embeddings
    embeddings = config.vocab_size * embedding + rows * width + norm * width + projection
    attention = 4 * (hidden * hidden + bias * hidden) + norm * hidden
    if config.position_type == "relative":
        # One vector in place of tables and norm; five kernels, three biases and two embeddings of segments.
        embeddings = config.vocab_size * embedding + embedding + projection
        attention = 5 * hidden * hidden + 5 * hidden + norm * hidden
    inner = inner_products * (hidden * inside + bias * inside)
    feed_forward = inner + inside * hidden + bias * hidden + norm * hidden
    final_norm = (config.norm_position == "pre") * norm * hidden
    steps = plan(config)
    blocks = attention * len({s.attention for s in steps}) + feed_forward * len({s.feed_forward for s in steps})
    if config.untie_biases:
        blocks += 5 * hidden * (len(steps) - len({s.attention for s in steps}))
    blocks += final_norm + hidden * (config.equilibrium_solver != "none") + depth_parameters(config)
    masked_lm = hidden * width + width + 2 * width + config.vocab_size
    heads = config.vocab_size if config.position_type == "relative" else masked_lm + 2 * hidden + 2
    return Parameters(embeddings, blocks, hidden * hidden + hidden, heads)


def depth_parameters(config: AlbertConfig) -> int:
    """Counts the parameters of the step signal, hyper-connections, low rank by depth and halting.

    Hyper-connections have, for each step, three matrices, three biases and three scales of gates, the signal that is
    added, and a gate that the published form (arXiv:2604.21254) has not.

    >>> depth_parameters(AlbertConfig(hyper_connections=4)) - 12
    451764
    """
    hidden, steps, streams = config.hidden_size, config.num_steps, config.hyper_connections
    signal = {"none": 0, "sinusoid": 1, "learned": steps * hidden}[config.step_signal]
    connections = steps * (3 * streams * streams * hidden + 3 * streams + 3 + hidden + 1) if streams else 0
    halting = (hidden + 2) * (config.halting != "none")
    return signal + connections + halting + sum(_adapted(config, plan(config)))


def _adapted(config: AlbertConfig, steps: list[Step]) -> list[int]:
    """The numbers in the adapters of each step, none where a half runs once."""
    widths = {"attention": 4 * 2 * config.hidden_size}
    products = 3 if config.feed_forward == "glu" else 2
    widths["ffn"] = products * (config.hidden_size + config.intermediate_size)
    counts = []
    for half, field in (("attention", "attention"), ("ffn", "feed_forward")):
        runs = [getattr(step, field) for step in steps]
        if config.depth_lora_target in (half, "both"):
            counts += [config.depth_lora_rank * widths[half] for run in runs if runs.count(run) > 1]
    return counts


def flops(config: AlbertConfig, length: int) -> Flops:
    """Counts the floating-point operations of a row of `length` tokens.

    >>> flops(AlbertConfig.named("albert_base_v2"), 512).total // 10**9
    96
    """
    hidden, steps, products = config.hidden_size, most_steps(config), 3 if config.feed_forward == "glu" else 2
    return Flops(
        projection=config.is_projected * 2 * length * config.embedding_size * hidden,
        attention_dense=steps * 4 * 2 * length * hidden * hidden,
        attention_scores=2 * 2 * hidden * steps * attended_pairs(config, length) // config.num_steps,
        feed_forward=steps * products * 2 * length * hidden * config.intermediate_size,
        pooler=2 * hidden * hidden,
        depth=2 * length * _depth_products(config),
    )


def attended_pairs(config: AlbertConfig, length: int) -> int:
    """Counts the pairs of tokens whose scores a row's forward pass computes, in all steps of the plan together."""
    if config.position_type == "relative":
        # A query is multiplied with every distance, too; a pair counts two products, of its key and its value.
        distances = 2 * length if config.attention_type == "bi" else length + 1
        return config.num_steps * (length * length + length * distances // 2)
    return sum(pairs(length, config.attention_window * step.is_local) for step in plan(config))


def _depth_products(config: AlbertConfig) -> int:
    """Multiplications for each token of what extensions over depth do: gates, streams, adapters and halting."""
    streams, hidden = config.hyper_connections, config.hidden_size
    # The gates' matrices; then each stream is read once, kept once and written to once.
    connections = config.num_steps * (3 * streams * streams * hidden + 3 * streams * hidden)
    halting = config.num_steps * 2 * hidden * (config.halting != "none")
    return connections + halting + sum(_adapted(config, plan(config)))


def most_steps(config: AlbertConfig) -> int:
    """Counts the blocks that a row runs through; on the way to an equilibrium, those of a row that takes longest."""
    if config.equilibrium_solver == "none":
        return config.num_steps
    runs = segments(config)
    # The one that repeats, of the plans that have a fixed point.
    solved = max(range(len(runs)), key=lambda place: runs[place].repeats)
    return sum(len(run.steps) * (config.equilibrium_max_steps if n == solved else 1) for n, run in enumerate(runs))


def cost_table(configs: dict[str, AlbertConfig], length: int = 512) -> str:
    """Makes a table for people: a line for each configuration, with the paper's count (vocabulary of 30,000)."""
    lines = [
        f"{'configuration':<22}{'layers':>7}{'hidden':>7}{'embed':>7}  {'sharing':<10}"
        f"{'encoder':>13}{'+ pooler':>13}{'+ heads':>13}{'paper':>7}{f'GFLOP at {length}':>15}"
    ]
    for name, config in configs.items():
        count, work = parameters(config), flops(config, length).total / 1e9
        paper = f"{PAPER[name]}M" if name in PAPER else ""
        lines.append(
            f"{name:<22}{config.num_hidden_layers:>7}{config.hidden_size:>7}{config.embedding_size:>7}"
            f"  {config.sharing:<10}{count.encoder:>13,}{count.encoder + count.pooler:>13,}{count.total:>13,}"
            f"{paper:>7}{work:>15,.1f}"
        )
    return "\n".join(lines)
