"""All that determines a fine-tuning run; the flags of run_finetuning are made from it."""

import dataclasses

from tfrecords.base.errors import UserError
from tfrecords.base.settings import setting

DTYPE_POLICIES = ("float32", "mixed_bfloat16")
STRATEGIES = ("none", "mirrored", "multi_worker", "data_parallel")


@dataclasses.dataclass(frozen=True)
class FinetuningSettings:
    """Steps count optimizer updates; batch sizes count examples. "The task's own" is in docs/finetuning.md."""

    task: str = setting(
        help="a GLUE task such as sst2, squad1, squad2, race; or your data: classification, regression, tagging"
    )
    data_dir: str = setting(help="folder with the task's files, e.g. glue/SST-2")
    output_dir: str = setting(help="model folder to write: the best model, its tokenizer, task.json, predictions")
    init_from: str = setting("", help="run folder, .keras file or published checkpoint whose encoder to start from")
    config: str = setting("", help="instead of --init_from: configuration of an encoder to train from scratch")
    tokenizer: str = setting("", help="a .model, vocab .txt or folder; empty: the one beside --init_from")
    lower_case: bool | None = setting(
        None, help="whether a published vocabulary lower-cases; left out: as the files beside it or its pieces say"
    )
    max_unknown_share: float = setting(
        0.2, help="of the training text's tokens, how many the vocabulary may have no piece for"
    )
    max_seq_length: int = setting(0, help="longest row in tokens; 0: the task's own, or what the encoder takes if less")
    train_batch_size: int = setting(0, help="examples a step; 0: the task's own")
    gradient_accumulation_steps: int = setting(
        1, help="parts that the batch of a step is cut into, one after the other, to save memory"
    )
    eval_batch_size: int = setting(32, help="examples a batch of evaluation and prediction")
    learning_rate: float = setting(0.0, help="peak of the learning-rate curve; 0: the task's own")
    num_train_steps: int = setting(0, help="steps in all; 0: as --num_train_epochs, or the task's own")
    num_train_epochs: float = setting(0.0, help="passes over the training examples; 0: as --num_train_steps")
    num_warmup_steps: int = setting(-1, help="steps of linear warm-up; -1: the task's own")
    save_checkpoints_steps: int = setting(
        0, help="steps between checkpoints, each with an evaluation; 0: an epoch, at most 1000"
    )
    max_hours: float = setting(
        0.0, help="stop, resumable, at the last checkpoint that fits into this time; 0: no limit"
    )
    early_stopping: int = setting(
        0, help="stop after as many evaluations in a row without a better main score; 0: train to the last step"
    )
    class_weights: str = setting(
        "", help="what each class counts in the loss: balanced, or as in no=1,yes=3; empty: all examples count alike"
    )
    weight_decay_rate: float = setting(0.01, help="decoupled weight decay; biases and layer norms are excluded")
    albert_dropout: float = setting(-1.0, help="dropout in the encoder, hidden and attention; -1: the task's own")
    classifier_dropout: float = setting(-1.0, help="dropout before the head; -1: the task's own")
    early_exit: bool = setting(False, help="train a head at every depth step, for models that may stop early")
    length_buckets: bool = setting(True, help="batches of like length; otherwise all of max_seq_length columns")
    dtype_policy: str = setting("float32", help="float32, or mixed_bfloat16 where the processor computes in bfloat16")
    jit_compile: bool = setting(
        False, help="compile the step with XLA, once per padded length (under KERAS_BACKEND=jax it always is)"
    )
    strategy: str = setting(
        "none", help="mirrored: the GPUs here; data_parallel: all devices that JAX sees (KERAS_BACKEND=jax)"
    )
    seed: int = setting(0, help="of the head's weights, the dropout and the order of examples")
    seeds: str = setting("", help="instead of --seed several runs: how many (0, 1, ...), or a list such as 3,7,11")
    dryrun: bool = setting(False, help="walk every path with a few examples and steps, and keep nothing")
    text_column: str = setting("text", help="of your own data: the column of the text, or of the words to tag")
    second_text_column: str = setting("", help="of your own data: the column of the second text of a pair")
    label_column: str = setting("label", help="of your own data: the column of the class, number or tags")
    span_head: str = setting("", help="of squad1 and squad2, plain or joint; empty: plain for squad1, joint for squad2")
    exclude_ids: str = setting("", help="of squad1 and squad2, file with a JSON list of question ids not to train on")
    teacher: str = setting("", help="folder of a fine-tuned, larger model of the same task to learn from")
    distillation_weight: float = setting(0.5, help="with --teacher: of its answers in the loss; labels have the rest")
    temperature: float = setting(2.0, help="with --teacher: what both models' logits are divided by when compared")

    def __post_init__(self):
        """Raises UserError naming the first value that no run could have."""
        if bool(self.init_from) == bool(self.config):
            raise UserError("give --init_from=... to start from trained weights, or --config=... to start from scratch")
        if self.num_train_steps and self.num_train_epochs:
            raise UserError("--num_train_steps and --num_train_epochs exclude each other; give one")
        least = {"gradient_accumulation_steps": 1, "eval_batch_size": 1, "num_warmup_steps": -1}
        zeros = ("max_seq_length", "train_batch_size", "learning_rate", "num_train_steps", "num_train_epochs")
        for name in (*least, *zeros, "save_checkpoints_steps", "early_stopping", "weight_decay_rate"):
            if not getattr(self, name) >= least.get(name, 0):
                raise UserError(f"--{name}={getattr(self, name)} must be {least.get(name, 0)} or more")
        if 0 < self.max_seq_length < 8:
            raise UserError(f"--max_seq_length={self.max_seq_length} must be 8 or more, or 0 for the task's own")
        for name in ("albert_dropout", "classifier_dropout"):
            if not (getattr(self, name) == -1 or 0 <= getattr(self, name) < 1):
                raise UserError(f"--{name}={getattr(self, name)} must be from 0 to below 1, or -1 for the task's own")
        if not 0 <= self.distillation_weight <= 1:
            raise UserError(f"--distillation_weight={self.distillation_weight} must be from 0 to 1")
        if not 0 <= self.max_unknown_share <= 1:
            raise UserError(f"--max_unknown_share={self.max_unknown_share} must be from 0 to 1")
        if not self.temperature > 0:
            raise UserError(f"--temperature={self.temperature} must be above 0")
        if self.dtype_policy not in DTYPE_POLICIES:
            raise UserError(f"--dtype_policy={self.dtype_policy} is unknown; choose one of {', '.join(DTYPE_POLICIES)}")
        if self.strategy not in STRATEGIES:
            raise UserError(f"--strategy={self.strategy} is unknown; choose one of {', '.join(STRATEGIES)}")
        self.seed_list()

    def seed_list(self) -> list[int]:
        """The seeds of the runs to make, one after the other."""
        if not self.seeds:
            return [self.seed]
        try:
            numbers = [int(part) for part in self.seeds.split(",")]
        except ValueError:
            numbers = [0]
        seeds = list(range(numbers[0])) if len(numbers) == 1 else numbers
        if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise UserError(f"--seeds={self.seeds} must be a number above 0, or different seeds such as 3,7,11")
        return seeds
