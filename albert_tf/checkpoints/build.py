"""The model that a checkpoint holds."""

from collections.abc import Mapping

import keras

from albert_tf.checkpoints.variables import Source
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertMultipleChoice, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.span_predictor import AlbertSpanPredictor


def build(
    config: AlbertConfig,
    sources: Mapping[str, Source],
    tensors: Mapping,
    pair_task: str,
    architecture: str = "",
) -> keras.Model:
    """An encoder, with the head whose tensors are there.

    Args:
        sources: our names to the checkpoint's.
        tensors: arrays by the checkpoint's names.
        pair_task: of a pre-trainer whose checkpoint has a pair head.
        architecture: HuggingFace's class name, which tells apart what a `classifier` is for.
    """

    def has(name: str) -> bool:
        return name in sources and sources[name].name in tensors

    encoder = AlbertEncoder(config, pooler=has("pooler/kernel"))
    if has("masked_lm/output_bias"):
        return AlbertPretrainer(encoder, pair_task=pair_task if has("pair/kernel") else None)
    if has("span/kernel") or has("start/kernel"):
        return AlbertSpanPredictor(encoder, joint=has("start/kernel"))
    if not has("classifier/kernel"):
        return encoder
    # Of a damaged kernel too: `fill` then says what is wrong with it.
    classes = max((1, *tensors[sources["classifier/kernel"].name].shape[:1]))
    exits = {"early_exit": True} if has("exit_0/kernel") else {}
    if "ForTokenClassification" in architecture or not (architecture or has("pooler/kernel")):
        return AlbertTokenClassifier(encoder, classes, **exits)
    if architecture.endswith("ForMultipleChoice"):
        return AlbertMultipleChoice(encoder)
    return AlbertRegressor(encoder, **exits) if classes == 1 else AlbertClassifier(encoder, classes, **exits)
