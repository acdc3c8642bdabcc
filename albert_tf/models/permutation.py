from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import by_name
from albert_tf.models.heads import TiedLMHead
from albert_tf.models.pretrainer import AlbertPretrainer
from tfrecords.base.errors import UserError


class RowMemory(keras.metrics.Metric):
    """Holds a batch's memory for the next batch, once `begin` was called.

    As a metric, it is updated on every backend and not saved as a weight. A reset zeroes the memory unless it `lasts`.

    >>> memory = RowMemory("memory", lasts=True)
    >>> memory.begin((1, 2, 4, 8, 16))
    >>> memory.update_state(ops.ones((2, 4, 8, 16)))
    >>> float(ops.mean(memory.result_of_turn()))
    1.0
    """

    def __init__(self, name: str, lasts: bool):
        super().__init__(name=name, dtype="float32")
        self._lasts = lasts
        self._rows: Any = None

    @property
    def is_kept(self) -> bool:
        return self._rows is not None

    def begin(self, shape: tuple[int, ...]) -> None:
        """Creates the memory, zeros [turns, steps, batch, memory, hidden_size], or checks an existing one's shape."""
        if self._rows is None:
            self._rows = self.add_variable(shape, "zeros", name="rows")
        elif tuple(self._rows.shape) != shape:
            raise ValueError(f"memory of shape {tuple(self._rows.shape)} cannot go on with {shape}")

    def begin_with(self, value: Any) -> None:
        value = np.array(value, "float32")
        self.begin(value.shape)
        self._rows.assign(value)

    def result_of_turn(self) -> Tensor:
        return self._rows[0]

    def update_state(self, memory: Tensor) -> None:
        memory = ops.cast(memory, "float32")
        self._rows.assign(ops.concatenate([self._rows[1:], memory[None]]))

    def result(self) -> dict[str, Any]:
        return {}

    def reset_state(self) -> None:
        if not self._lasts:
            super().reset_state()

    def to_numpy(self) -> np.ndarray:
        return ops.convert_to_numpy(self._rows)


@keras.saving.register_keras_serializable(package="albert_tf")
class XlnetPretrainer(AlbertPretrainer):
    """Pre-trains an encoder with relative positions as XLNet does, by query streams (arXiv:1906.08237, section 2.3).

    Loss and metrics are built in: `compile(optimizer=...)`, then `fit` on a dataset of feature dicts. Rows hold the
    true tokens instead of [MASK]; `perm_mask` restricts attention.

    Raises:
        UserError: the encoder's positions are not relative, or `pair_task` is given.

    >>> import numpy as np
    >>> config = AlbertConfig.named("albert_xlnet_base").replace(num_hidden_layers=2, hidden_size=96)
    >>> features = {"input_ids": np.array([[17, 21, 5, 4, 3]]), "masked_lm_positions": np.array([[1, 2]])}
    >>> XlnetPretrainer(config).predict(features, verbose=0)["masked_lm_logits"].shape
    (1, 2, 32000)
    """

    head_class = TiedLMHead
    # XLNet uses the plain mean (modeling.py, lm_loss; train_gpu.py); the loss of a batch without words is 0.
    loss_epsilon = 1e-12

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, pair_task: str | None = None, **kwargs: Any):
        if pair_task not in (None, "none"):
            raise UserError(f"pair_task '{pair_task}': XLNet has none; leave it out")
        super().__init__(encoder, pair_task=None, **kwargs)
        position_type = self.encoder.config.position_type
        if position_type != "relative":
            raise UserError(f"XlnetPretrainer needs position_type 'relative', not '{position_type}'")

    @property
    def exported_part(self) -> AlbertEncoder:
        return self.encoder

    def build(self, input_shape: Any = None) -> None:
        self.memory, self.held_out_memory = RowMemory("memory", lasts=True), RowMemory("held_out_memory", lasts=False)
        super().build(input_shape)

    def keep_memory(self, train_batch_size: int, eval_batch_size: int, parts: int = 1) -> None:
        """From now on, passes the memory of each batch's rows on to the next batch; the encoder has a memory_length.

        Training batches must have `train_batch_size` rows, and all others `eval_batch_size`. Training uses `parts`
        memories in turn; checkpoints keep them. Evaluation's memory is cleared when metrics are reset.
        Memories begin as zeros, unless a checkpoint held some.
        """
        config = self.encoder.config
        shapes = ((config.num_steps, rows, config.memory_length, config.hidden_size)
                  for rows in (train_batch_size, eval_batch_size))  # fmt: skip
        for memory, shape, turns in zip((self.memory, self.held_out_memory), shapes, (parts, 1)):
            memory.begin((turns, *shape))

    def call(self, features: Any, training: bool = False) -> dict[str, Tensor]:
        """Returns the vocabulary's logits for each target.

        Args:
            features: those of AlbertEncoder and, for targets, one of two more:
                masked_lm_positions, int32 [batch, predictions]. Without a perm_mask, no other token attends to targets.
                target_mapping, float [batch, predictions, sequence]: each row is one-hot, or zeros for no target.
                Without targets, every token of the sequence is scored.
            training: enables dropout.

        Returns:
            dict of masked_lm_logits, float32 [batch, predictions or sequence, vocab_size], and, if the encoder has a
            memory_length, memory [steps, batch, memory, hidden_size].
        """
        features = by_name(features)
        if "masked_lm_positions" in features and "target_mapping" not in features:
            features = features | {"query_positions": features["masked_lm_positions"]}
            if "perm_mask" not in features:
                features["perm_mask"] = _hidden_targets(features)
        kept = self.memory if training else self.held_out_memory
        keeps = kept.is_kept and "memory" not in features
        if keeps:
            features = features | {"memory": kept.result_of_turn()}
        outputs = self.encoder(features, training=training)
        if keeps:
            kept.update_state(outputs["memory"])
        vectors = outputs.get("query_output", outputs["sequence_output"])
        logits = {"masked_lm_logits": self.masked_lm_head(vectors)}
        return logits | ({"memory": outputs["memory"]} if "memory" in outputs else {})

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.memory.is_kept:
            store["memory"] = self.memory.to_numpy()

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        if "memory" in set(store.keys()):
            self.memory.begin_with(store["memory"])


def _hidden_targets(features: dict[str, Any]) -> Tensor:
    batch, length = ops.shape(features["input_ids"])
    targets = ops.one_hot(ops.cast(features["masked_lm_positions"], "int32"), length, dtype="float32")
    if "masked_lm_weights" in features:
        targets = targets * ops.cast(features["masked_lm_weights"], "float32")[:, :, None]
    return ops.broadcast_to(ops.max(targets, axis=1)[:, None], (batch, length, length))


# Manifest keys that determine a step's examples, besides those of all objectives.
MANIFEST_KEYS = ("objective", "reuse_length", "streams")


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
    if isinstance(model, XlnetPretrainer) and model.encoder.config.memory_length:
        parts = settings.gradient_accumulation_steps
        model.keep_memory(settings.train_batch_size // parts, settings.eval_batch_size, parts)
