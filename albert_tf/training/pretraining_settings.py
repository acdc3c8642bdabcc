import dataclasses
from pathlib import Path
from typing import ClassVar

from albert_tf.choices import OPTIMIZERS
from albert_tf.config import AlbertConfig
from albert_tf.config.registry import WALKS
from albert_tf.trainer_settings import PublishedModel, Records, Run, Start, Updates
from tfrecords.base.errors import UserError
from tfrecords.base.settings import CheckedSettings, setting

# Settings that a resumed run may change: none affects which examples give which update.
FREE_ON_RESUME = (
    "output_dir", "log_steps", "max_hours", "strategy", "pack_rows", "dryrun", "allow_pickle",
    "tensorboard",
)  # fmt: skip
_DEFAULTS = {
    "train_data": dataclasses.MISSING,
    "max_eval_steps": 100,
    "learning_rate": 0.00176,
    "train_batch_size": 4096,
    "num_train_steps": 125_000,
    "num_warmup_steps": -1,
    "save_checkpoints_steps": 5_000,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondPhase(CheckedSettings, only="second_train_data"):
    """Settings of a second phase."""

    second_train_data: str = setting(
        "", help="records of a second phase, usually with longer rows (128, then 512 tokens)"
    )
    second_eval_data: str = setting("", help="held-out records of the second phase")
    second_from_step: int = setting(
        0, help="number of updates before the second phase begins, usually nine tenths of all"
    )
    second_train_batch_size: int = setting(
        0, help="examples a step in the second phase; 0: as in the first", at_least=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(
    SecondPhase,
    Start,
    Records,
    Updates,
    Run,
    PublishedModel,
    defaults=_DEFAULTS,
    meanings={"num_warmup_steps": "a fortieth of all"},
):
    """The settings of a pre-training run.

    Steps count updates; batch sizes count examples over all devices. Defaults are the paper's
    (google-research/albert:run_pretraining.py:68-94).
    """

    groups: ClassVar[dict[str, str]] = {
        "Data": "eval_data second_train_data second_from_step pack_rows",
        "Model": "config init_from tokenizer",
        "Training": (
            "optimizer learning_rate train_batch_size num_train_steps num_warmup_steps "
            "save_checkpoints_steps max_hours seed dryrun"
        ),
        "Memory and speed": "gradient_accumulation_steps dtype_policy jit_compile strategy",
    }

    tokenizer: str = setting(
        "",
        help="the records' tokenizer, if it has another vocabulary than --init_from: pieces of both keep their "
        "embeddings, a new piece starts as the mean of its former pieces",
    )
    memory_length: int = setting(
        0,
        help="records of permutations: number of earlier positions that a row attends to; 0: as many as --config says",
        at_least=0,
    )
    optimizer: str = setting(
        "lamb", help="lamb, adamw, or muon (Muon for matrices, adamw for everything else)", choices=OPTIMIZERS
    )
    beta_2: float = setting(
        0.999, help="decay of the squared gradients' running mean; RoBERTa uses 0.98", at_least=0, below=1
    )
    global_clipnorm: float = setting(
        1.0, help="largest norm over all gradients; larger ones are scaled down; 0: not at all", at_least=0
    )
    log_steps: int = setting(100, help="steps between rows of history.csv and points in TensorBoard", at_least=1)
    walk: str = setting(
        "unrolled",
        help="how the steps over depth are computed; unrolled: one copy of the graph per step; loop: a small "
        "graph; recompute: less memory, a second forward pass; equilibrium: a model that iterates to a fixed point",
        choices=WALKS,
    )
    pack_rows: bool = setting(
        True,
        help="join a batch's examples into fewer rows, without attention between them, if more than a fifth "
        "would be padding",
    )

    def __post_init__(self):
        if self.num_warmup_steps == -1:
            object.__setattr__(self, "num_warmup_steps", self.num_train_steps // 40)
        super().__post_init__()
        if not (self.config or self.init_from):
            raise UserError("give --config=... to start from scratch, or --init_from=... to go on from trained weights")
        for name in ("num_train_steps", "train_batch_size", "save_checkpoints_steps"):
            if not getattr(self, name):
                raise UserError(f"--{name}=0 must be 1 or more")
        self.check_warmup()
        if self.second_train_data and not 0 < self.second_from_step < self.num_train_steps:
            raise UserError(
                f"--second_from_step={self.second_from_step} must be above 0 and below "
                f"--num_train_steps={self.num_train_steps} where --second_train_data is given"
            )


def shrunk(
    settings: PretrainingSettings, folder: Path, config: AlbertConfig, replicas: int, rows: int = 2
) -> PretrainingSettings:
    """Returns settings that run a tiny model on `rows` rows per replica; writes its config to `folder`."""
    # Settings of single steps need all the steps.
    of_steps = config.depth_plan or config.depth_lora_rank or config.random_depth_min
    most = config.num_hidden_layers if of_steps else 2
    small = config.replace(
        embedding_size=32 if config.embedding_size == config.hidden_size else 16, hidden_size=32,
        num_hidden_layers=min(most, config.num_hidden_layers), num_hidden_groups=min(most, config.num_hidden_groups),
        num_attention_heads=2, intermediate_size=64,
    )  # fmt: skip
    small.to_json(folder / "shrunk.json")
    batch = rows * settings.gradient_accumulation_steps * replicas
    two_phases = bool(settings.second_train_data)
    return dataclasses.replace(
        settings, dryrun=False, config=str(folder / "shrunk.json"), init_from="", output_dir=str(folder / "run"),
        train_batch_size=batch, second_train_batch_size=batch if two_phases else 0, eval_batch_size=batch,
        max_eval_steps=2, num_train_steps=6, num_warmup_steps=1, save_checkpoints_steps=2, log_steps=1,
        second_from_step=3 if two_phases else 0, max_hours=0.0,
    )  # fmt: skip
