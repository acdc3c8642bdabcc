import dataclasses
from pathlib import Path
from typing import ClassVar

from albert_tf.base.learning_rate import scale_learning_rate
from albert_tf.choices import GRADIENT_NORMS, MAX_SEED, OPTIMIZERS
from albert_tf.config import AlbertConfig
from albert_tf.config.registry import WALKS
from albert_tf.trainer_settings import TrainerSettings
from tfrecords.base.errors import UserError
from tfrecords.base.settings import setting
from tfrecords.build_settings import OBJECTIVES

_OF_PERMUTATION = ("memory_length", "perm_size")
# Settings that a resumed run may change: none affects which examples give which update.
FREE_ON_RESUME = (
    "output_dir", "log_steps", "max_hours", "max_skipped_updates", "strategy", "pack_rows",
    "dryrun", "allow_pickle",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(TrainerSettings):
    """The settings of a pre-training run.

    Steps count updates; batch sizes count examples over all devices. Defaults are the paper's
    (google-research/albert:run_pretraining.py:68-94).
    """

    groups: ClassVar[dict[str, str]] = {
        "Data": "eval_data second_train_data second_from_step pack_rows",
        "Model": "config init_from tokenizer objective",
        "Training": (
            "optimizer learning_rate train_batch_size num_train_steps num_warmup_steps "
            "save_checkpoints_steps max_hours seed dryrun"
        ),
        "Memory and speed": "gradient_accumulation_steps dtype_policy jit_compile strategy",
    }

    train_data: str = setting(help="file pattern of training records, e.g. 'data/train-*.tfrecord*'")
    output_dir: str = setting(help="folder of the run: checkpoints, history.csv, TensorBoard logs")
    config: str = setting(
        "", help="a published configuration, e.g. albert_base_v2, a model on the hub, or an albert_config.json"
    )
    init_from: str = setting(
        "",
        help="run folder, .keras file or published checkpoint to continue training from; --config may then be left out",
    )
    tokenizer: str = setting(
        "",
        help="the records' tokenizer, if it has another vocabulary than --init_from: pieces of both keep their "
        "embeddings, a new piece starts as the mean of its former pieces",
    )
    former_tokenizer: str = setting(
        "", help="with --tokenizer: the tokenizer that --init_from was trained with, if it is not in the same folder"
    )
    objective: str = setting(
        "masked",
        help="masked: predict masked words; permutation: predict words in a random order, from records in the "
        "order of the text",
        choices=OBJECTIVES,
    )
    memory_length: int = setting(
        0,
        help="permutation: number of earlier positions that a row attends to; 0: as many as --config says",
        at_least=0,
    )
    perm_size: int = setting(
        0,
        help="permutation: number of tokens that are permuted among each other; 0: as many as go into a row's parts",
        at_least=0,
    )
    eval_data: str = setting("", help="file pattern of held-out records, evaluated at every checkpoint")
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
    optimizer: str = setting(
        "lamb", help="lamb, adamw, or muon (Muon for matrices, adamw for everything else)", choices=OPTIMIZERS
    )
    learning_rate: float = setting(0.00176, help="peak of the learning-rate curve", at_least=0)
    learning_rate_batch_size: int = setting(
        0,
        help="batch size that --learning_rate is for (4096 in the paper); the rate is scaled by the square root "
        "of --train_batch_size over it; 0: no scaling",
        at_least=0,
    )
    poly_power: float = setting(1.0, help="power of the decay after warm-up; 1 is a straight line to zero", at_least=0)
    weight_decay: float = setting(0.01, help="decoupled weight decay; biases and layer norms are excluded", at_least=0)
    beta_1: float = setting(0.9, help="decay of the gradients' running mean", at_least=0, below=1)
    beta_2: float = setting(
        0.999, help="decay of the squared gradients' running mean; RoBERTa uses 0.98", at_least=0, below=1
    )
    epsilon: float = setting(1e-6, help="added to the root of the squared gradients' mean", above=0)
    global_clipnorm: float = setting(
        1.0, help="largest norm over all gradients; larger ones are scaled down; 0: not at all", at_least=0
    )
    gradient_norm: str = setting(
        "summed",
        help="how the norm for clipping is computed; official: as google-research's code computes it off TPUs, "
        "which counts each looked-up row of an embedding by itself",
        choices=GRADIENT_NORMS,
    )
    train_batch_size: int = setting(4096, help="examples a step", at_least=1)
    gradient_accumulation_steps: int = setting(
        1, help="number of parts that a step's batch is split into; they are computed one after the other", at_least=1
    )
    eval_batch_size: int = setting(64, help="examples a batch of the evaluation", at_least=1)
    max_eval_steps: int = setting(100, help="batches of an evaluation, from the first records on; 0: all", at_least=0)
    num_train_steps: int = setting(
        125_000, help="number of steps, at the end of which the rate has decayed to zero", at_least=1
    )
    num_warmup_steps: int = setting(
        -1,
        help="steps of linear warm-up; -1: a fortieth of all, 3,125 in the paper",
        at_least=0,
        below="num_train_steps",
        also={-1: "for a fortieth of them"},
    )
    save_checkpoints_steps: int = setting(5_000, help="steps between checkpoints, each with an evaluation", at_least=1)
    log_steps: int = setting(100, help="steps between rows of history.csv and points in TensorBoard", at_least=1)
    max_skipped_updates: int = setting(
        20,
        help="number of updates that may be skipped because a gradient is not finite; one more ends the run",
        at_least=0,
    )
    jit_compile: bool = setting(False, help="compile the step with XLA")
    walk: str = setting(
        "unrolled",
        help="how the steps over depth are computed; unrolled: one copy of the graph per step; loop: a small "
        "graph; recompute: less memory, a second forward pass; equilibrium: a model that iterates to a fixed point",
        choices=WALKS,
    )
    shuffle_window: int = setting(16384, help="size of the shuffle buffer, in examples", at_least=1)
    files_at_once: int = setting(
        0,
        help="number of record files that are read in parallel; 0: 64",
        at_least=0,
    )
    pack_rows: bool = setting(
        True,
        help="join a batch's examples into fewer rows, without attention between them, if more than a fifth "
        "would be padding",
    )
    seed: int = setting(
        0,
        help="seed for the weights, the dropout, the order of examples and the dynamic masks",
        at_least=0,
        at_most=MAX_SEED,
    )
    dryrun: bool = setting(False, help="try every stage with a tiny model in a minute, and save nothing")

    def __post_init__(self):
        if self.num_warmup_steps == -1:
            object.__setattr__(self, "num_warmup_steps", self.num_train_steps // 40)
        super().__post_init__()
        if not (self.config or self.init_from):
            raise UserError("give --config=... to start from scratch, or --init_from=... to go on from trained weights")
        if self.former_tokenizer and not (self.init_from and self.tokenizer):
            raise UserError(f"--former_tokenizer={self.former_tokenizer} needs --init_from=... and --tokenizer=...")
        for name in ("train_batch_size", "second_train_batch_size"):
            if getattr(self, name) % self.gradient_accumulation_steps:
                raise UserError(
                    f"--{name}={getattr(self, name)} must be a multiple of "
                    f"--gradient_accumulation_steps={self.gradient_accumulation_steps}"
                )
        self._check_phases()
        if self.objective != "permutation" and (given := self.given(_OF_PERMUTATION)):
            raise UserError(f"{given} is for --objective=permutation; leave it out")
        if self.gradient_norm == "official" and self.gradient_accumulation_steps > 1:
            raise UserError(
                "--gradient_norm=official cannot be combined with --gradient_accumulation_steps: sums have no rows"
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
        """The rate after warm-up, scaled if `learning_rate_batch_size` is set."""
        if not self.learning_rate_batch_size:
            return self.learning_rate
        return scale_learning_rate(self.learning_rate, self.train_batch_size, self.learning_rate_batch_size)


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
    parts = settings.gradient_accumulation_steps
    batch = rows * parts * replicas
    two_phases = bool(settings.second_train_data)
    return dataclasses.replace(
        settings, dryrun=False, config=str(folder / "shrunk.json"), init_from="", former_tokenizer="",
        output_dir=str(folder / "run"),
        gradient_accumulation_steps=parts,
        train_batch_size=batch, second_train_batch_size=batch if two_phases else 0, eval_batch_size=batch,
        max_eval_steps=2, num_train_steps=6, num_warmup_steps=1, save_checkpoints_steps=2, log_steps=1,
        second_from_step=3 if two_phases else 0, max_hours=0.0,
    )  # fmt: skip
