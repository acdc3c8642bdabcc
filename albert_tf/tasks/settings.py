"""The settings of fine-tuning and of ensembles."""

import dataclasses
import re
from pathlib import Path
from typing import ClassVar

from albert_tf.choices import MAX_SEED, OTHER_TOKENIZER_HELP, PAIR_LOSSES
from albert_tf.trainer_settings import TrainerSettings
from tfrecords.base.errors import UserError
from tfrecords.base.settings import CheckedSettings, setting

# Tasks of a user's own data.
OWN_KINDS = ("classification", "multilabel", "regression", "tagging")
# Settings of --task=pairs alone, and of all tasks but this.
_OF_PAIRS = ("loss", "symmetric", "margin", "matryoshka_dims", "negative_columns", "query_prompt", "document_prompt")
_NOT_OF_PAIRS = (
    *("keep_head", "early_exit", "class_weights", "classifier_dropout", "distillation_weight"),
    *("span_head", "exclude_ids"),
)
# Settings of a flag alone.
_OF_FLAG = {
    "data_file": ("dev_fraction", "split_seed", "encoding"),
    "teacher": ("distillation_weight",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningSettings(TrainerSettings):
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

    data_file: str = setting(
        "", help="one table of your own: .csv, .tsv, JSON lines or .parquet; --dev_fraction of its rows is held out"
    )
    data_dir: str = setting(
        "", help="folder with the files of a task, e.g. glue/SST-2, or with train and dev files; instead of --data_file"
    )
    task: str = setting(
        "",
        help="a GLUE task such as sst2, or squad1, squad2, race; for your own data classification, multilabel, "
        "regression, tagging or pairs; empty: detected from the labels of your data",
    )
    output_dir: str = setting(help="model folder to write: the best model, its tokenizer, task.json, predictions")
    init_from: str = setting(
        "", help="encoder to start from: training folder, .keras file, published checkpoint, or a name on the hub"
    )
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
    config: str = setting(
        "",
        help="train from scratch: a configuration's name or file, or that of a hub model; instead of --init_from",
    )
    tokenizer: str = setting(
        "", help="a .model, vocab .txt, folder or name on the hub; empty: the tokenizer in the folder of --init_from"
    )
    other_tokenizer: bool = setting(False, help=OTHER_TOKENIZER_HELP)
    lower_case: bool | None = setting(
        None, help="whether a published vocabulary lower-cases; left out: as the files next to it or its pieces say"
    )
    keep_accents: bool | None = setting(
        None, help="whether a published vocabulary keeps accents; left out: as the files next to it say, or else not"
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
    train_batch_size: int = setting(0, help="examples a step; 0: the task's own", at_least=0)
    gradient_accumulation_steps: int = setting(
        1,
        help="number of parts that a step's batch is split into; they are computed one after the other, to save memory",
        at_least=1,
    )
    eval_batch_size: int = setting(32, help="examples a batch of evaluation and prediction", at_least=1)
    learning_rate: float = setting(0.0, help="peak of the learning-rate curve; 0: the task's own", at_least=0)
    num_train_steps: int = setting(0, help="steps in all; 0: by --num_train_epochs, or else the task's own", at_least=0)
    num_train_epochs: float = setting(
        0.0, help="passes over the training examples, instead of --num_train_steps; 0: not set", at_least=0
    )
    num_warmup_steps: int = setting(-1, help="steps of linear warm-up; -1: the task's own", at_least=-1)
    save_checkpoints_steps: int = setting(
        0, help="steps between checkpoints, each with an evaluation; 0: an epoch, at most 1000", at_least=0
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
    weight_decay: float = setting(0.01, help="decoupled weight decay; biases and layer norms are excluded", at_least=0)
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
    length_buckets: bool = setting(
        True, help="put rows of similar length into a batch; otherwise pad every batch to --max_seq_length"
    )
    jit_compile: bool = setting(False, help="compile the step with XLA, once per padded length")
    seed: int = setting(
        0, help="seed for the head's weights, the dropout and the order of examples", at_least=0, at_most=MAX_SEED
    )
    seeds: str = setting(
        "", help="train several runs: a count (3: seeds 0, 1, 2), or a list such as 3,7,11; instead of --seed"
    )
    dryrun: bool = setting(False, help="run every stage with a few examples and steps, and save nothing")
    text_column: str = setting(
        "", help="column of the text in your own data, or of the words to tag; empty: text, sentence or the like"
    )
    second_text_column: str = setting("", help="column of the second text of a pair in your own data")
    label_column: str = setting(
        "", help="column of the class, number or tags in your own data; empty: label, class or the like"
    )
    dev_fraction: float = setting(
        0.1,
        help="share of the rows of --data_file that is held out for evaluation, taken from every label; 0: none",
        at_least=0,
        below=1,
    )
    split_seed: int = setting(
        0, help="seed that chooses the held-out rows of --data_file", at_least=0, at_most=MAX_SEED
    )
    encoding: str = setting("", help="encoding of --data_file if it is not UTF-8, such as cp1252")
    span_head: str = setting(
        "", help="head for squad1 and squad2, plain or joint; empty: plain for squad1, joint for squad2"
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
    symmetric: bool = setting(False, help="multiple_negatives_ranking also ranks the anchors for each positive")
    margin: float = setting(
        1.0, help="triplet: how much farther from the anchor a negative should be than the positive", at_least=0
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
        of_loss = [name for name in ("temperature", "symmetric", "margin", "matryoshka_dims") if name not in options]
        if self.loss and (given := self.given(of_loss)):
            raise UserError(f"{given} has no effect on --loss={self.loss}; leave it out")
        if not re.fullmatch(r"([1-9]\d*(,[1-9]\d*)*)?", self.matryoshka_dims):
            raise UserError(f"--matryoshka_dims={self.matryoshka_dims} must be widths such as 384,128,64")
        if len(set(widths := self.matryoshka_dims.split(","))) < len(widths):
            raise UserError(f"--matryoshka_dims={self.matryoshka_dims} names a width twice; leave one out")

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


@dataclasses.dataclass(frozen=True)
class EnsembleSettings(CheckedSettings):
    """The models of an ensemble, and the files to predict."""

    task: str = setting(help="the same as --task of run_finetuning")
    data_dir: str = setting(help="folder with the task's files; the dev and test files are answered")
    models: str = setting(help="folders of fine-tuned models, separated by commas")
    output_dir: str = setting(help="folder to write: predictions as those of run_finetuning, and ensemble.json")
    max_seq_length: int = setting(
        0, help="longest row in tokens; 0: the smallest that one of the models was trained with", at_least=0
    )
    eval_batch_size: int = setting(32, help="rows a batch", at_least=1)
    text_column: str = setting("text", help="column of the text in your own data, or of the words to tag")
    second_text_column: str = setting("", help="column of the second text of a pair in your own data")
    label_column: str = setting("label", help="column of the class, number or tags in your own data")


def check_data_dir(path: str) -> None:
    """Raises UserError if `path` is no folder."""
    if not Path(path).is_dir():
        raise UserError(f"no folder '{path}'; --data_dir names the one with the task's files")
