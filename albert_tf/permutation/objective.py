"""Memory of permutation pre-training."""

from collections.abc import Sequence
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.permutation.pretrainer import XlnetPretrainer
from tfrecords.base.errors import UserError

# Manifest keys that determine a step's examples, besides those of all objectives.
MANIFEST_KEYS = ("objective", "reuse_length", "streams")
MODEL = XlnetPretrainer


def with_memory(config: AlbertConfig, settings: Any, phases: Sequence[Any]) -> AlbertConfig:
    """Returns the configuration with the memory lengths that a run's settings and phases require."""
    if config.position_type != "relative":
        raise UserError(
            "records of permutations need a configuration with position_type 'relative', such as albert_xlnet_base or "
            f"xlnet_base, not '{config.position_type}'"
        )
    length = settings.memory_length or config.memory_length
    if not length:
        return config
    if settings.strategy != "none":
        raise UserError(
            f"--strategy={settings.strategy} keeps no memory from batch to batch; leave it out, or set the "
            "configuration's memory_length to 0"
        )
    reuses = {phase.manifest["reuse_length"] for phase in phases}
    if len(reuses) > 1 or len({phase.batch_size for phase in phases}) > 1:
        raise UserError(
            "the two phases differ in batch size or the records' reuse_length, so that no memory can go on from one to "
            "the other; train them as two runs, the second with --init_from"
        )
    return config.replace(memory_length=length, reuse_length=reuses.pop())


def begin_memory(model: AlbertPretrainer, settings: Any) -> None:
    """Starts the model's memory, if its configuration has a memory_length."""
    if isinstance(model, MODEL) and model.encoder.config.memory_length:
        parts = settings.gradient_accumulation_steps
        model.keep_memory(settings.train_batch_size // parts, settings.eval_batch_size, parts)
