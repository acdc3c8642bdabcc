"""The settings of fine-tuning and of ensembles."""

import dataclasses
import re
from pathlib import Path
from typing import ClassVar

from albert_tf.choices import MAX_SEED, PAIR_LOSSES
from albert_tf.trainer_settings import DataFile, DataFolder, PublishedTokenizer, Run, Start, Updates
from tfrecords.base.errors import UserError
from tfrecords.base.settings import setting

# Tasks of a user's own data.
# Settings of --task=pairs alone, and of all tasks but this.
_OF_PAIRS = ("loss", "matryoshka_dims", "negative_columns", "query_prompt", "document_prompt")
_NOT_OF_PAIRS = (
    *("keep_head", "early_exit", "class_weights", "classifier_dropout", "distillation_weight"),
    *("span_head", "exclude_ids"),
)
# Settings of a flag alone.
_OF_FLAG = {"data_file": ("dev_fraction", "encoding"), "teacher": ("distillation_weight",)}
_OWN = "the task's own"
_DEFAULTS = {
    "eval_batch_size": 32,
    "learning_rate": 0.0,
    "train_batch_size": 0,
    "num_train_steps": 0,
    "num_warmup_steps": -1,
    "save_checkpoints_steps": 0,
}
_MEANINGS = {
    "learning_rate": _OWN,
    "train_batch_size": _OWN,
    "num_train_steps": "by --num_train_epochs, or else the task's own",
    "num_warmup_steps": _OWN,
    "save_checkpoints_steps": "an epoch, at most 1000",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningSettings(
    DataFile, DataFolder, Start, PublishedTokenizer, Updates, Run, defaults=_DEFAULTS, meanings=_MEANINGS
):
    """The settings of a fine-tuning run.

    Steps count optimizer updates; batch sizes count examples. Defaults called "the task's own" are in
    docs/guide/finetune.md.
    """

    groups: ClassVar[dict[str, str]] = {
        "Your data": "data_file data_dir task text_column second_text_column label_column dev_fraction encoding",
        "Model": "init_from config tokenizer keep_head teacher early_exit max_seq_length",
        "Training": (
            "learning_rate train_batch_size num_train_epochs num_train_steps num_warmup_steps early_stopping "
            "class_weights max_hours seed seeds dryrun"
        ),
        "Pairs of texts": ("loss negative_columns query_prompt document_prompt"),
        "Memory and speed": "gradient_accumulation_steps dtype_policy jit_compile",
    }

    keep_head: bool = setting(
        False,
        help="also take the head of --init_from, to continue training a model that was fine-tuned on the same labels",
    )
    depth: int = setting(
        0, help="number of layers to run, if --init_from shares blocks; 0: as many as it has", at_least=0
    )
    random_depth_min: int = setting(
        -1,
        help="draw the number of layers for each batch, at least this many, 0 for none; -1: as --init_from or --config",
        at_least=-1,
    )
    max_unknown_share: float = setting(
        0.2,
        help="largest share of the training text's tokens that may be unknown to the vocabulary",
        at_least=0,
        at_most=1,
    )
    max_seq_length: int = setting(
        0,
        help="longest row in tokens; 0: the task's own, or what the encoder takes if less",
        at_least=8,
        also={0: "for the task's own"},
    )
    num_train_epochs: float = setting(
        0.0, help="passes over the training examples, instead of --num_train_steps; 0: not set", at_least=0
    )
    early_stopping: int = setting(
        0,
        help="stop after this many evaluations in a row without a better main score; 0: train to the last step",
        at_least=0,
    )
    class_weights: str = setting(
        "",
        help="weight of each class in the loss: balanced, or a list such as no=1,yes=3; empty: all examples "
        "count alike",
    )
    albert_dropout: float = setting(
        -1.0,
        help="dropout in the encoder, hidden and attention; -1: the task's own",
        at_least=0,
        below=1,
        also={-1: "for the task's own"},
    )
    classifier_dropout: float = setting(
        -1.0, help="dropout before the head; -1: the task's own", at_least=0, below=1, also={-1: "for the task's own"}
    )
    early_exit: bool = setting(False, help="train a head after every layer, so that a row may stop early")
    calibrate: bool = setting(
        True, help="fit a temperature, or thresholds of several labels, on the rows held out, and store it in the model"
    )
    seeds: str = setting(
        "", help="train several runs: a count (3: seeds 0, 1, 2), or a list such as 3,7,11; instead of --seed"
    )
    dev_fraction: float = setting(
        0.1,
        help="share of the rows of --data_file that is held out for evaluation, taken from every label; 0: none",
        at_least=0,
        below=1,
    )
    span_head: str = setting(
        "",
        help="head for squad1 and squad2; empty: plain for squad1, joint for squad2",
        choices=("", "plain", "joint"),
    )
    exclude_ids: str = setting("", help="file with a JSON list of question ids that squad1 and squad2 do not train on")
    teacher: str = setting(
        "", help="folder of a fine-tuned, larger model of the same task to learn from; for pairs any embedder"
    )
    distillation_weight: float = setting(
        0.5, help="weight of the answers of --teacher in the loss; the labels have the rest", at_least=0, at_most=1
    )
    temperature: float = setting(
        0.0,
        help="number that the logits of the model and of --teacher are divided by before they are compared, or the "
        "cosines of pairs; 0: 2, of pairs 0.05",
        at_least=0,
    )
    loss: str = setting(
        "",
        help="loss on pairs; empty: mse with --teacher, cosent with scores, else multiple_negatives_ranking, whose "
        "--gradient_accumulation_steps are exact (GradCache)",
        choices=("", *PAIR_LOSSES),
    )
    matryoshka_dims: str = setting(
        "", help="widths to which vectors may later be cut, such as 384,128,64; the losses at all of them are added up"
    )
    negative_columns: str = setting(
        "", help="columns of texts that do not match the first one, comma-separated; empty: those named negative..."
    )
    query_prompt: str | None = setting(None, help="text before every anchor; left out: the model's own for queries")
    document_prompt: str | None = setting(None, help="text before every other text; left out: the model's own")

    def __post_init__(self):
        super().__post_init__()
        if bool(self.data_file) == bool(self.data_dir):
            raise UserError(
                "give --data_file=reviews.csv, one table of your own, or --data_dir=..., a folder with a task's files"
            )
        if bool(self.init_from) == bool(self.config):
            raise UserError("give --init_from=... to start from trained weights, or --config=... to start from scratch")
        if self.num_train_steps and self.num_train_epochs:
            raise UserError("--num_train_steps and --num_train_epochs exclude each other; give one")
        if self.depth and self.config:
            raise UserError("--depth is of the weights of --init_from; say num_hidden_layers in --config")
        if self.config and self.keep_head:
            raise UserError("--keep_head is of the model of --init_from; leave it out beside --config")
        if self.random_depth_min > 0 and self.early_exit:
            raise UserError("exits train every depth with every batch; leave out --random_depth_min")
        for flag, names in _OF_FLAG.items():
            if not getattr(self, flag) and (given := self.given(names)):
                raise UserError(f"{given} is for --{flag}; leave it out")
        self._check_pairs()
        self.seed_list()

    def _check_pairs(self) -> None:
        if self.task != "pairs":
            if given := self.given(_OF_PAIRS):
                raise UserError(f"{given} is for --task=pairs; leave it out")
            # A run without a teacher has the tasks' own, 2, once it is resolved.
            if not self.teacher and self.temperature not in (0.0, 2.0):
                raise UserError(f"--temperature={self.temperature} is for --teacher, or --task=pairs; leave it out")
            return
        if given := self.given(_NOT_OF_PAIRS):
            raise UserError(f"{given} has no effect on --task=pairs; leave it out")
        options = PAIR_LOSSES[self.loss].options if self.loss else ()
        of_loss = [name for name in ("temperature", "matryoshka_dims") if name not in options]
        if self.loss and (given := self.given(of_loss)):
            raise UserError(f"{given} has no effect on --loss={self.loss}; leave it out")
        if not re.fullmatch(r"([1-9]\d*(,[1-9]\d*)*)?", self.matryoshka_dims):
            raise UserError(f"--matryoshka_dims={self.matryoshka_dims} must be widths such as 384,128,64")

    def seed_list(self) -> list[int]:
        if not self.seeds:
            return [self.seed]
        try:
            numbers = [int(part) for part in self.seeds.split(",")]
        except ValueError:
            numbers = [0]
        seeds = list(range(numbers[0])) if len(numbers) == 1 else numbers
        if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > MAX_SEED:
            raise UserError(f"--seeds={self.seeds} must be a number above 0, or different seeds such as 3,7,11")
        return seeds


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleSettings(DataFolder, defaults={"task": dataclasses.MISSING, "data_dir": dataclasses.MISSING}):
    """The models of an ensemble, and the files to predict."""

    models: str = setting(help="folders of fine-tuned models, separated by commas")
    output_dir: str = setting(help="folder to write: predictions as those of run_finetuning, and ensemble.json")
    max_seq_length: int = setting(
        0, help="longest row in tokens; 0: the smallest that one of the models was trained with", at_least=0
    )
    eval_batch_size: int = setting(32, help="rows a batch", at_least=1)


def check_data_dir(path: str) -> None:
    """Raises UserError if `path` is no folder."""
    if not Path(path).is_dir():
        raise UserError(f"no folder '{path}'; --data_dir names the one with the task's files")
