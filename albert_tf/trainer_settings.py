"""Settings that several commands have in common, by what they are about."""

import dataclasses

from albert_tf.choices import ALLOW_PICKLE_HELP, DTYPE_POLICIES, MAX_SEED, STRATEGIES, TASKS
from tfrecords.base.errors import UserError, check_libraries
from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedModel(CheckedSettings):
    """A model in a format of others."""

    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Applied(PublishedModel):
    """A model that a command runs on texts."""

    model: str = setting(help="model that reads the texts: a folder, a .keras file or a published model")
    batch_size: int = setting(64, help="texts a batch", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(CheckedSettings):
    """The columns of a table."""

    text_column: str = setting(
        "", help="column of the text in your own data, or of the words to tag; empty: text, sentence or the like"
    )
    second_text_column: str = setting("", help="column of the second text of a pair in your own data")
    label_column: str = setting(
        "", help="column of the class, number or tags in your own data; empty: label, class or the like"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFile(CheckedSettings, only="data_file"):
    """One table of the user's own."""

    data_file: str = setting("", help="one table of your own: .csv, .tsv, JSON lines or .parquet")
    encoding: str = setting("", help="encoding of --data_file if it is not UTF-8, such as cp1252")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFolder(Columns):
    """The files of a task."""

    task: str = setting(
        "",
        help="a GLUE task such as sst2, or squad1, squad2, race; for your own data classification, multilabel, "
        "regression, tagging or pairs; empty: detected from the labels of your data",
        choices=TASKS,
    )
    data_dir: str = setting("", help="folder with the files of a task, e.g. glue/SST-2, or with train and dev files")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records(CheckedSettings):
    """Training examples and held-out ones."""

    train_data: str = setting("", help="file pattern of training records, e.g. 'data/train-*.tfrecord*'")
    eval_data: str = setting("", help="file pattern of held-out records")
    max_eval_steps: int = setting(
        0, help="batches of --eval_data to evaluate, from the first records on; 0: all", at_least=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(CheckedSettings):
    """A training run."""

    output_dir: str = setting(help="folder of the run: the model and its files, checkpoints, history.csv")
    seed: int = setting(
        0, help="seed for new weights, dropout, masks and the order of examples", at_least=0, at_most=MAX_SEED
    )
    max_hours: float = setting(
        0.0, help="stop before this time is over; rerun the command to continue; 0: no limit", at_least=0
    )
    save_checkpoints_steps: int = setting(0, help="steps between checkpoints, each with an evaluation", at_least=0)
    eval_batch_size: int = setting(64, help="rows a batch of evaluation and prediction", at_least=1)
    dtype_policy: str = setting(
        "float32", help="float32, or mixed_bfloat16 where the processor computes in bfloat16", choices=DTYPE_POLICIES
    )
    strategy: str = setting(
        "none", help="mirrored: the GPUs here; multi_worker: the processes of TF_CONFIG", choices=STRATEGIES
    )
    jit_compile: bool = setting(False, help="compile the step with XLA")
    tensorboard: bool = setting(False, help="also write the history for TensorBoard; needs the extra tensorboard")

    def __post_init__(self):
        super().__post_init__()
        if self.tensorboard:
            check_libraries("--tensorboard", "tensorboard", tensorboard="tensorboard")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updates(CheckedSettings):
    """The steps of a training run."""

    learning_rate: float = setting(0.0, help="peak of the learning-rate curve", at_least=0)
    train_batch_size: int = setting(0, help="examples a step", at_least=0)
    gradient_accumulation_steps: int = setting(
        1,
        help="number of parts that a step's batch is split into; they are computed one after the other, to save memory",
        at_least=1,
    )
    num_train_steps: int = setting(0, help="steps in all, after which the rate has decayed to zero", at_least=0)
    num_warmup_steps: int = setting(-1, help="steps of linear warm-up", at_least=-1)
    weight_decay: float = setting(0.01, help="decoupled weight decay; biases and layer norms are excluded", at_least=0)

    def check_warmup(self) -> None:
        """Raises UserError if the warm-up is as long as the run."""
        if self.num_warmup_steps >= max(self.num_train_steps, 1):
            raise UserError(
                f"--num_warmup_steps={self.num_warmup_steps} must be below the {self.num_train_steps} steps of the run"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start(CheckedSettings):
    """What a run trains on."""

    init_from: str = setting(
        "", help="model to start from: run folder, .keras file, published checkpoint, or a name on the hub"
    )
    config: str = setting(
        "",
        help="train from scratch: a published configuration, such as albert_base_v2, a file, or a hub model's",
    )
    dryrun: bool = setting(False, help="try every stage with little data and a few steps, and save nothing")
