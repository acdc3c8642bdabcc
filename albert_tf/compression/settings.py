import dataclasses
from typing import ClassVar

from albert_tf.choices import MAX_SEED
from albert_tf.trainer_settings import TrainerSettings
from tfrecords.base.errors import UserError
from tfrecords.base.settings import setting

# Ways to choose what the steps that share a block share.
BLOCKS = ("mean", "best")
# The value of --vocab_from for the training text.
CORPUS = "corpus"
# The loss terms of a student, by the names of their weights in the settings.
LESSONS = ("vectors", "similarities", "states", "relations", "words")
# Settings that a resumed distillation may change.
FREE_ON_RESUME = (
    *("model", "output_dir", "text", "data_dir", "vocab_from", "cache_gb", "max_hours", "strategy"),
    *("eval_batch_size", "allow_pickle"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressSettings(TrainerSettings):
    """The settings of a compression.

    Steps count optimizer updates; batch sizes count rows of text.
    """

    groups: ClassVar[dict[str, str]] = {
        "Data": "text task data_dir text_column label_column max_seq_length",
        "Model": "embedding_size plan lora_rank layers intermediate_size vocab_from vocab_size",
        "Training": "num_train_steps train_batch_size learning_rate max_hours seed",
        "Memory and speed": "cache_gb gradient_accumulation_steps dtype_policy strategy",
    }

    model: str = setting(
        help="model to compress, which is also the teacher: folder, .keras file or published checkpoint"
    )
    output_dir: str = setting(help="model folder to write: the compressed model, and compress.json")
    embedding_size: int = setting(
        -1,
        help="columns of the word embeddings, reduced by a singular value decomposition, 0 for no reduction; -1: "
        "128, or unchanged if they have no more already",
        at_least=-1,
    )
    energy: float = setting(
        0.0,
        help="share of the embeddings' squares to keep, such as 0.9; instead of --embedding_size",
        at_least=0,
        below=1,
    )
    plan: str = setting(
        "",
        help="plan of the blocks to run: 1x6, 1+1x4+1, ..., or none for the model's own; empty: one block as "
        "often as the model has layers",
    )
    lora_rank: int = setting(
        16, help="rank of the correction that each step adds to a shared block; 0: no correction", at_least=0
    )
    lora_target: str = setting(
        "both", help="part of a shared block that gets the correction", choices=("attention", "ffn", "both")
    )
    block: str = setting(
        "mean",
        help="initial weights of a shared block; mean: the mean of the blocks that it replaces; best: the one of them "
        "that changes the texts' vectors least",
        choices=BLOCKS,
    )
    align: bool = setting(True, help="before blocks are shared, reorder their units and heads so that they match")
    layers: int = setting(0, help="number of the model's layers to keep, evenly spaced; 0: all", at_least=0)
    intermediate_size: int = setting(
        0, help="units of each feed-forward layer to keep, those with the largest weights; 0: all", at_least=0
    )
    text: str = setting(
        "",
        help="file patterns of plain text to learn from, .txt or .jsonl, also .gz, comma-separated; empty: the "
        "texts of --task's training file",
    )
    text_field: str = setting("text", help="field of a .jsonl line that holds the text")
    split_sentences: bool = setting(True, help="make a row of each sentence; otherwise of each line")
    max_seq_length: int = setting(128, help="longest row in tokens; longer rows are cut", at_least=8)
    held_out_rows: int = setting(
        512, help="number of rows that are held out from training to measure the likeness", at_least=16
    )
    vocab_from: str = setting(
        "", help="keep only the pieces that this text uses: file patterns, or corpus for the text to learn from"
    )
    vocab_size: int = setting(0, help="largest number of pieces that --vocab_from keeps; 0: all that occur", at_least=0)
    task: str = setting(
        "",
        help="instead of --text, the task whose training texts to learn from: a GLUE task such as stsb or sst2, or the "
        "kind of your own data",
    )
    data_dir: str = setting("", help="folder with the task's files")
    text_column: str = setting("text", help="column of the text in your own data")
    second_text_column: str = setting("", help="column of the second text of a pair in your own data")
    label_column: str = setting("label", help="column of the class or number in your own data")
    num_train_steps: int = setting(2000, help="steps of distillation on text; 0: none", at_least=0)
    num_warmup_steps: int = setting(-1, help="steps of linear warm-up; -1: a twentieth of all", at_least=-1)
    train_batch_size: int = setting(64, help="rows a step", at_least=2)
    gradient_accumulation_steps: int = setting(
        1,
        help="number of parts that a step's batch is split into; they are computed one after the other, to save memory",
        at_least=1,
    )
    learning_rate: float = setting(4e-4, help="peak of the learning-rate curve", at_least=0)
    weight_decay: float = setting(0.01, help="decoupled weight decay", at_least=0)
    vectors_weight: float = setting(
        -1.0,
        help="weight in the loss of 1 - cosine between the texts' vectors; -1: 1, or 0 for a model fine-tuned on"
        " a task",
        at_least=0,
        also={-1: "for the model's own"},
    )
    similarities_weight: float = setting(
        -1.0,
        help="weight in the loss of the squared difference of the cosines between a batch's texts; -1: 10, or 0 "
        "for a model fine-tuned on a task",
        at_least=0,
        also={-1: "for the model's own"},
    )
    states_weight: float = setting(
        1.0,
        help="weight in the loss of the squared difference of every step's hidden states, relative to the model's",
        at_least=0,
    )
    relations_weight: float = setting(
        0.0, help="weight in the loss of the divergence of the last step's value relations, as in MiniLM", at_least=0
    )
    words_weight: float = setting(
        1.0,
        help="weight in the loss of the divergence of the masked words' distributions, for models with a "
        "masked-LM head",
        at_least=0,
    )
    map_states: bool = setting(
        False, help="multiply hidden states, except the last step's, by a learned matrix before they are compared"
    )
    cache_gb: float = setting(
        8.0,
        help="largest disk space in GB to store the teacher's outputs, if rows are read more than once; 0: they are "
        "computed each time",
        at_least=0,
    )
    eval_batch_size: int = setting(64, help="rows a batch of an evaluation", at_least=1)
    save_checkpoints_steps: int = setting(0, help="steps between checkpoints; 0: a twentieth of all", at_least=0)
    jit_compile: bool = setting(False, help="compile the step with XLA")
    seed: int = setting(
        0,
        help="seed for the order of rows, the masked words and randomly initialized weights",
        at_least=0,
        at_most=MAX_SEED,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.energy and self.embedding_size != -1:
            raise UserError("--energy and --embedding_size both say how narrow the embeddings become; give one")
        if self.map_states and not self.states_weight:
            raise UserError("--map_states is of the lesson of states, which --states_weight=0 leaves out")
        if bool(self.task) != bool(self.data_dir):
            raise UserError("--task and --data_dir belong together: whose texts to learn from, and where its files are")
        if bool(self.text) == bool(self.task):
            raise UserError("give the texts to learn from: --text='corpus/*.txt', or --task and --data_dir, not both")
        if self.vocab_size and not self.vocab_from:
            raise UserError("--vocab_size needs --vocab_from=corpus, or the files whose pieces are kept")
        if self.num_warmup_steps >= max(self.num_train_steps, 1):
            raise UserError(f"--num_warmup_steps={self.num_warmup_steps} must be below --num_train_steps")
        if self.train_batch_size % self.gradient_accumulation_steps:
            raise UserError(
                f"--train_batch_size={self.train_batch_size} is no multiple of "
                f"--gradient_accumulation_steps={self.gradient_accumulation_steps}"
            )

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term by name; -1 if the model determines it."""
        return {name: getattr(self, f"{name}_weight") for name in LESSONS}
