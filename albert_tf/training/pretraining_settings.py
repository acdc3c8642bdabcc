"""All that determines a pre-training run, and the small run that tries every path of it."""

import dataclasses
from pathlib import Path

from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import WALKS
from albert_tf.optimizers import GRADIENT_NORMS, OPTIMIZERS, scale_learning_rate
from albert_tf.training.devices import STRATEGIES
from tfrecords.base.errors import UserError
from tfrecords.base.settings import setting

DTYPE_POLICIES = ("float32", "mixed_bfloat16")

# What a resumed run may have other than before: none of it changes which examples give which update.
FREE_ON_RESUME = ("output_dir", "log_steps", "max_hours", "max_skipped_updates", "strategy", "memory_gb", "dryrun")


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """Steps count optimizer updates; batch sizes count examples, over all devices.

    Defaults are the paper's, from google-research/albert:run_pretraining.py:68-94.
    """

    train_data: str = setting(help="file pattern of training records, e.g. 'data/train-*.tfrecord*'")
    output_dir: str = setting(help="folder of the run: checkpoints, history.csv, TensorBoard logs")
    config: str = setting("", help="a published configuration's name, e.g. albert_base_v2, or an albert_config.json")
    init_from: str = setting(
        "", help="run folder, .keras file or published checkpoint to go on training; --config may then be left out"
    )
    eval_data: str = setting("", help="file pattern of held-out records, evaluated at every checkpoint")
    second_train_data: str = setting("", help="records of a second phase, usually longer ones (128, then 512 tokens)")
    second_eval_data: str = setting("", help="held-out records of the second phase")
    second_from_step: int = setting(0, help="updates made before the second phase begins, say nine tenths of all")
    second_train_batch_size: int = setting(0, help="examples a step in the second phase; 0: as in the first")
    optimizer: str = setting("lamb", help="lamb or adamw")
    learning_rate: float = setting(0.00176, help="peak of the learning-rate curve")
    learning_rate_batch_size: int = setting(
        0, help="the batch size that --learning_rate is for (the paper's: 4096); the rate is scaled by the square root"
        " of --train_batch_size over it; 0: taken as it is"
    )  # fmt: skip
    poly_power: float = setting(1.0, help="power of the decay after warm-up; 1 is a straight line to zero")
    weight_decay_rate: float = setting(0.01, help="decoupled weight decay; biases and layer norms are excluded")
    global_clipnorm: float = setting(1.0, help="the norm over all gradients is cut to this; 0: not at all")
    gradient_norm: str = setting(
        "summed", help="what that norm is of; official: as google-research's code off TPUs, which counts each looked-up"
        " row of an embedding by itself (TensorFlow only)"
    )  # fmt: skip
    train_batch_size: int = setting(4096, help="examples a step")
    gradient_accumulation_steps: int = setting(
        0, help="parts that a step's batch is computed in one after the other; 0: as many as memory asks for"
    )
    memory_gb: float = setting(
        0.0, help="GiB that the run may take; 0: what the machine, its container or its GPU has free"
    )
    eval_batch_size: int = setting(64, help="examples a batch of the evaluation")
    max_eval_steps: int = setting(100, help="batches of an evaluation, from the first records on; 0 for all")
    num_train_steps: int = setting(125_000, help="steps in all; the rate has decayed to zero there")
    num_warmup_steps: int = setting(3_125, help="steps of linear warm-up")
    save_checkpoints_steps: int = setting(5_000, help="steps between checkpoints, each with an evaluation")
    log_steps: int = setting(100, help="steps between rows of history.csv and points in TensorBoard")
    max_hours: float = setting(0.0, help="stop, resumable, at the last row that fits into this time; 0: no limit")
    max_skipped_updates: int = setting(
        20, help="updates that may be skipped in all because a gradient is not finite; one more ends the run"
    )
    dtype_policy: str = setting("float32", help="float32, or mixed_bfloat16 where the processor computes in bfloat16")
    jit_compile: bool = setting(False, help="compile the step with XLA (under KERAS_BACKEND=jax it always is)")
    walk: str = setting("unrolled", help="unrolled; loop: a small graph; recompute: less memory, a second forward pass")
    strategy: str = setting(
        "none", help="mirrored: the GPUs here; multi_worker: the processes of TF_CONFIG, under either backend; "
        "data_parallel: all devices that JAX sees (KERAS_BACKEND=jax)"
    )  # fmt: skip
    shuffle_window: int = setting(16384, help="examples that are shuffled among each other")
    files_at_once: int = setting(0, help="files of records read side by side; 0: 64, of folders of older versions 16")
    seed: int = setting(0, help="of the weights, the dropout, the order of examples and dynamic masks")
    dryrun: bool = setting(False, help="try every path with a tiny model in a minute, keep nothing")

    def __post_init__(self):
        """Raises UserError naming the first value that no run could have."""
        if not (self.config or self.init_from):
            raise UserError("give --config=... to start from scratch, or --init_from=... to go on from trained weights")
        self._check_numbers()
        choices = {"optimizer": OPTIMIZERS, "dtype_policy": DTYPE_POLICIES, "walk": WALKS, "strategy": STRATEGIES}
        choices["gradient_norm"] = GRADIENT_NORMS
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UserError(f"--{name}={getattr(self, name)} is unknown; choose one of {', '.join(known)}")
        self._check_phases()
        if self.gradient_norm == "official" and self.gradient_accumulation_steps > 1:
            raise UserError(
                "--gradient_norm=official cannot be combined with --gradient_accumulation_steps: sums have no rows"
            )

    def _check_numbers(self):
        positive = ("train_batch_size", "eval_batch_size", "num_train_steps")
        for name in (*positive, "save_checkpoints_steps", "log_steps", "shuffle_window"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}={getattr(self, name)} must be 1 or more")
        not_negative = ("second_train_batch_size", "learning_rate_batch_size", "global_clipnorm", "max_eval_steps")
        not_negative += ("learning_rate", "weight_decay_rate", "poly_power", "gradient_accumulation_steps", "memory_gb")
        for name in (*not_negative, "max_hours", "max_skipped_updates", "files_at_once"):
            if not getattr(self, name) >= 0:
                raise UserError(f"--{name}={getattr(self, name)} must be 0 or more")
        if not 0 <= self.num_warmup_steps < self.num_train_steps:
            raise UserError(
                f"--num_warmup_steps={self.num_warmup_steps} must be 0 or more and below "
                f"--num_train_steps={self.num_train_steps}"
            )
        for name in ("train_batch_size", "second_train_batch_size"):
            if getattr(self, name) % (self.gradient_accumulation_steps or 1):
                raise UserError(
                    f"--{name}={getattr(self, name)} must be a multiple of "
                    f"--gradient_accumulation_steps={self.gradient_accumulation_steps}"
                )

    def _check_phases(self):
        if self.second_train_data and not 0 < self.second_from_step < self.num_train_steps:
            raise UserError(
                f"--second_from_step={self.second_from_step} must be above 0 and below "
                f"--num_train_steps={self.num_train_steps} where --second_train_data is given"
            )
        for name in ("second_eval_data", "second_from_step", "second_train_batch_size"):
            if getattr(self, name) and not self.second_train_data:
                raise UserError(f"--{name}={getattr(self, name)} needs --second_train_data=...")

    @property
    def peak_learning_rate(self) -> float:
        if not self.learning_rate_batch_size:
            return self.learning_rate
        return scale_learning_rate(self.learning_rate, self.train_batch_size, self.learning_rate_batch_size)


def shrunk(settings: PretrainingSettings, folder: Path, config: AlbertConfig, replicas: int) -> PretrainingSettings:
    """The same run, with all its choices, at a size that takes seconds; its configuration is written to `folder`."""
    groups = min(2, config.num_hidden_groups)
    small = config.replace(
        embedding_size=32 if config.embedding_size == config.hidden_size else 16, hidden_size=32, num_hidden_layers=2,
        num_hidden_groups=groups, num_attention_heads=2, intermediate_size=64,
    )  # fmt: skip
    small.to_json(folder / "shrunk.json")
    parts = settings.gradient_accumulation_steps or 1
    batch = 2 * parts * replicas
    two_phases = bool(settings.second_train_data)
    return dataclasses.replace(
        settings, dryrun=False, config=str(folder / "shrunk.json"), init_from="", output_dir=str(folder / "run"),
        gradient_accumulation_steps=parts,
        train_batch_size=batch, second_train_batch_size=batch if two_phases else 0, eval_batch_size=batch,
        max_eval_steps=2, num_train_steps=6, num_warmup_steps=1, save_checkpoints_steps=2, log_steps=1,
        second_from_step=3 if two_phases else 0, max_hours=0.0,
    )  # fmt: skip
