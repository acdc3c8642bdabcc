import dataclasses
from typing import ClassVar

from albert_tf.trainer_settings import DataFolder, PublishedModel, Run, Updates
from tfrecords.base.errors import UserError
from tfrecords.base.settings import CheckedSettings, setting

# The value of --vocab_from for the training text.
CORPUS = "corpus"
# Settings that a resumed distillation may change.
FREE_ON_RESUME = (
    *("model", "output_dir", "text", "data_dir", "vocab_from", "max_hours", "strategy"),
    *("eval_batch_size", "allow_pickle", "tensorboard"),
)
_DEFAULTS = {
    "learning_rate": 4e-4,
    "train_batch_size": 64,
    "num_train_steps": 2000,
    "num_warmup_steps": -1,
    "save_checkpoints_steps": 0,
}
_OF_ALL = dict.fromkeys(("num_warmup_steps", "save_checkpoints_steps"), "a twentieth of all")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfTask(DataFolder, only="task"):
    """Settings of a task whose texts are learned from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary(CheckedSettings, only="vocab_from"):
    """Settings of a smaller vocabulary."""

    vocab_from: str = setting(
        "", help="keep only the pieces that this text uses: file patterns, or corpus for the text to learn from"
    )
    vocab_size: int = setting(0, help="largest number of pieces that --vocab_from keeps; 0: all that occur", at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressSettings(OfTask, Vocabulary, Updates, Run, PublishedModel, defaults=_DEFAULTS, meanings=_OF_ALL):
    """The settings of a compression.

    Steps count optimizer updates; batch sizes count rows of text.
    """

    groups: ClassVar[dict[str, str]] = {
        "Data": "text task data_dir text_column label_column max_seq_length",
        "Model": "embedding_size plan lora_rank layers intermediate_size vocab_from vocab_size",
        "Training": "num_train_steps train_batch_size learning_rate max_hours seed",
        "Memory and speed": "gradient_accumulation_steps dtype_policy strategy",
    }

    model: str = setting(
        help="model to compress, which is also the teacher: folder, .keras file or published checkpoint"
    )
    embedding_size: int = setting(
        -1,
        help="columns of the word embeddings, reduced by a singular value decomposition, 0 for no reduction; -1: "
        "128, or unchanged if they have no more already",
        at_least=-1,
    )
    plan: str = setting(
        "",
        help="plan of the blocks to run: 1x6, 1+1x4+1, ..., or none for the model's own; empty: one block as "
        "often as the model has layers",
    )
    lora_rank: int = setting(
        16, help="rank of the correction that each step adds to a shared block; 0: no correction", at_least=0
    )
    layers: int = setting(0, help="number of the model's layers to keep, evenly spaced; 0: all", at_least=0)
    intermediate_size: int = setting(
        0, help="units of each feed-forward layer to keep, those with the largest weights; 0: all", at_least=0
    )
    text: str = setting(
        "",
        help="file patterns of plain text to learn from, .txt or .jsonl, also .gz, comma-separated; empty: the "
        "texts of --task's training file",
    )
    split_sentences: bool = setting(True, help="make a row of each sentence; otherwise of each line")
    max_seq_length: int = setting(128, help="longest row in tokens; longer rows are cut", at_least=8)
    held_out_rows: int = setting(
        512, help="number of rows that are held out from training to measure the likeness", at_least=16
    )

    def __post_init__(self):
        super().__post_init__()
        if bool(self.text) == bool(self.task) or bool(self.task) != bool(self.data_dir):
            raise UserError("give the texts to learn from: --text='corpus/*.txt', or --task and --data_dir, not both")
        self.check_warmup()
