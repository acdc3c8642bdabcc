from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from albert_tf.checkpoints.alignment import align_blocks
from albert_tf.checkpoints.resizing import check_size, check_units, factorize_embeddings, narrow_blocks
from albert_tf.checkpoints.sharing import share_blocks
from albert_tf.checkpoints.variables import encoder_of, named_variables, with_config
from albert_tf.compression.settings import CompressSettings
from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import plan
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from tfrecords.base.errors import UserError

# The names of a layer's variables, also of an early exit's head; a number follows.
_OF_LAYERS = ("attention", "feed_forward", "exit")
# Columns of the word embeddings by default.
DEFAULT_SIZE = 128


class CompressionPlan(NamedTuple):
    """How a model is compressed; fields that are 0 or empty change nothing.

    Attributes:
        layers: numbers of layers to keep, ascending.
        lora_rank: rank of the matrices by which a shared block differs between steps.
        intermediate_size: number of feed-forward units to keep.
    """

    layers: tuple[int, ...]
    embedding_size: int = 0
    plan: str = ""
    lora_rank: int = 0
    intermediate_size: int = 0


def cut_of(settings: CompressSettings, model: keras.Model) -> CompressionPlan:
    """Returns the compression plan that settings describe; raises UserError if it does not fit the model."""
    config = encoder_of(model).config
    if getattr(model, "dimensions", config.hidden_size) != config.hidden_size or getattr(model, "projections", []):
        raise UserError("an embedder is compressed without dense layers and with one pooling; this one has more")
    kept = settings.layers or config.num_hidden_layers
    if kept > config.num_hidden_layers:
        raise UserError(f"--layers={kept} is more than the model's {config.num_hidden_layers}")
    size = settings.embedding_size
    is_wide = not config.is_projected and config.spec.has_norm
    if size == -1:
        size = DEFAULT_SIZE if is_wide and config.hidden_size > DEFAULT_SIZE else 0
    shares = config.sharing == "none" and config.inner_group_num == 1 and kept > 1
    written = settings.plan or (f"1x{kept}" if shares else "none")
    layers = tuple((number + 1) * config.num_hidden_layers // kept - 1 for number in range(kept))
    cut = CompressionPlan(
        layers, 0 if size == config.embedding_size else size,
        *("" if written == "none" else written, 0 if written == "none" else settings.lora_rank),
        settings.intermediate_size,
    )  # fmt: skip
    if cut.plan and config.inner_group_num > 1:
        raise UserError("--plan is for models without inner groups; give --plan=none")
    if not cut.plan and (given := settings.given(["lora_rank"])):
        raise UserError(f"{given} is of blocks that are shared, and none will be; give --plan too, or leave it out")
    if cut.embedding_size:
        check_size(config, cut.embedding_size)
    if cut.intermediate_size:
        check_units(config, cut.intermediate_size)
    cut_config(config, cut)
    return cut


def compress(model: keras.Model, cut: CompressionPlan, counts: np.ndarray | None = None) -> Any:
    """Returns a new, uncompiled model, compressed by the plan `cut`.

    `counts`, how often each token occurs, weight the rows of the embeddings.
    """
    model = _without_unread_pooler(keep_layers(model, cut.layers))
    if cut.embedding_size:
        model = factorize_embeddings(model, cut.embedding_size, counts)
    if cut.plan:
        model = _shared(model, cut)
    # After sharing, which matches the order of the blocks' units.
    return narrow_blocks(model, cut.intermediate_size) if cut.intermediate_size else model


def _shared(model: Any, cut: CompressionPlan) -> Any:
    before = encoder_of(model).config
    config = _shared_config(before, cut)
    if before.sharing == "none":
        groups = dict[int, list[int]]()
        for number, step in enumerate(plan(config)):
            groups.setdefault(step.attention, []).append(number)
        model = align_blocks(model, list(groups.values()))
    return share_blocks(model, config)


def cut_config(config: AlbertConfig, cut: CompressionPlan) -> AlbertConfig:
    """Returns the configuration of the model that `compress` makes."""
    if cut.layers != tuple(range(config.num_hidden_layers)):
        config = config.replace(num_hidden_layers=len(cut.layers), **_no_plan(config, len(cut.layers)))
    if cut.embedding_size:
        config = config.replace(embedding_size=cut.embedding_size, factorization="word", always_project=False)
    if cut.intermediate_size:
        config = config.replace(intermediate_size=cut.intermediate_size)
    return _shared_config(config, cut) if cut.plan else config


def keep_layers(model: Any, layers: tuple[int, ...]) -> Any:
    """Returns a model with only these layers; raises UserError if layers share weights or depend on depth."""
    config = encoder_of(model).config
    if layers == tuple(range(config.num_hidden_layers)):
        return model
    if config.sharing != "none" or config.inner_group_num > 1 or encoder_of(model).depth_variables:
        raise UserError("--layers is for models whose layers share nothing, such as BERT; give --depth elsewhere")
    other = with_config(model, config.replace(num_hidden_layers=len(layers), **_no_plan(config, len(layers))))
    before = named_variables(model)
    for name, variable in named_variables(other).items():
        half, _, rest = name.partition("/")
        kind, _, number = half.rpartition("_")
        is_of_layer = kind in _OF_LAYERS and number.isdigit()
        source = f"{kind}_{layers[int(number)]}/{rest}" if is_of_layer else name
        variable.assign(ops.convert_to_numpy(before[source]))
    return other


def _without_unread_pooler(model: Any) -> Any:
    if not isinstance(model, AlbertSentenceEmbedder) or model.encoder.pooler is None:
        return model
    encoder = AlbertEncoder.from_config(model.encoder.get_config() | {"pooler": False})
    before = named_variables(model)
    for name, variable in named_variables(encoder).items():
        variable.assign(ops.convert_to_numpy(before[name]))
    return AlbertSentenceEmbedder(encoder, model.pooling, model.normalize, truncate_dim=model.truncate_dim)


def _no_plan(config: AlbertConfig, layers: int) -> dict[str, Any]:
    return {"num_hidden_groups": min(config.num_hidden_groups, layers), "random_depth_min": 0}


def _shared_config(config: AlbertConfig, cut: CompressionPlan) -> AlbertConfig:
    repeats = any("x" in part for part in cut.plan.split("+"))
    return config.replace(
        sharing="all" if config.sharing == "none" else config.sharing, num_hidden_groups=1, depth_plan=cut.plan,
        depth_lora_rank=cut.lora_rank if repeats else 0, depth_lora_target="both",
    )  # fmt: skip
