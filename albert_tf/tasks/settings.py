"""The settings of fine-tuning and of ensembles."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from albert_tf.choices import MAX_SEED, OTHER_TOKENIZER_HELP, PAIR_LOSSES
from albert_tf.trainer_settings import DataFile, DataFolder, Run, Start, Updates
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.settings import CheckedSettings, setting

# The names of an embedder's prompts.
ROLES = ("query", "document")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitTable(DataFile, only="data_file"):
    """One table, part of which is held out."""

    dev_fraction: float = setting(
        0.1,
        help="share of the rows of --data_file that is held out for evaluation, taken from every label; 0: none",
        at_least=0,
        below=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfWeights(CheckedSettings, only="init_from"):
    """Settings of a run that starts from trained weights."""

    keep_head: bool = setting(
        False,
        help="also take the head of --init_from, to continue training a model that was fine-tuned on the same labels",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfTeacher(CheckedSettings, only="teacher"):
    """Settings of distillation."""

    distillation_weight: float = setting(
        0.5, help="weight of the answers of --teacher in the loss; the labels have the rest", at_least=0, at_most=1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfLabels(OfWeights, OfTeacher, only="task!=pairs"):
    """Settings of tasks that have labels or answers."""

    early_exit: bool = setting(False, help="train a head after every layer, so that a row may stop early")
    class_weights: str = setting(
        "",
        help="weight of each class in the loss: balanced, or a list such as no=1,yes=3; empty: all examples "
        "count alike",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfPairs(CheckedSettings, only="task=pairs"):
    """Settings of training on pairs of texts."""

    loss: str = setting(
        "",
        help="loss on pairs; empty: mse with --teacher, cosent with scores, else multiple_negatives_ranking, whose "
        "--gradient_accumulation_steps are exact (GradCache)",
        choices=("", *PAIR_LOSSES),
    )
    matryoshka_dims: str = setting(
        "", help="widths to which vectors may later be cut, such as 384,128,64; the losses at all of them are added up"
    )
    prompt: tuple[str, ...] = setting(
        (),
        help='"query=text before every anchor" or "document=text before every other text"; repeat the flag for both; '
        "left out: the model's own",
    )

    def __post_init__(self):
        super().__post_init__()
        refuse({
            f"--matryoshka_dims={self.matryoshka_dims} has no effect on --loss={self.loss}; leave it out":
                self.loss and self.matryoshka_dims and not PAIR_LOSSES[self.loss].cuts,
            f"--matryoshka_dims={self.matryoshka_dims} must be widths such as 384,128,64":
                not re.fullmatch(r"([1-9]\d*(,[1-9]\d*)*)?", self.matryoshka_dims),
        })  # fmt: skip
        if unknown := [one for one in self.prompt if one.partition("=")[0] not in ROLES or "=" not in one]:
            raise UserError(f"--prompt={unknown[0]} must begin with query= or document=")

    @property
    def prompts(self) -> dict[str, str]:
        """The texts of `prompt` by role."""
        return {role: text for role, _, text in (one.partition("=") for one in self.prompt)}


_OWN = "the task's own"
_DEFAULTS = {
    "learning_rate": 0.0,
    "train_batch_size": 0,
    "num_train_steps": 0,
    "save_checkpoints_steps": 0,
}
_MEANINGS = {
    "learning_rate": _OWN,
    "train_batch_size": _OWN,
    "num_train_steps": "by --num_train_epochs, or else the task's own",
    "save_checkpoints_steps": "an epoch, at most 1000",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningSettings(
    OfPairs, OfLabels, SplitTable, DataFolder, Start, Updates, Run,
    defaults=_DEFAULTS, meanings=_MEANINGS,
):  # fmt: skip
    """The settings of a fine-tuning run.

    Steps count optimizer updates; batch sizes count examples. Defaults called "the task's own" are in
    docs/reference/tasks.md.
    """

    groups: ClassVar[dict[str, str]] = {
        "Your data": "data_file data_dir task text_column second_text_column label_column dev_fraction encoding",
        "Model": "init_from config tokenizer keep_head teacher early_exit max_seq_length",
        "Training": (
            "learning_rate train_batch_size num_train_epochs num_train_steps early_stopping class_weights max_hours "
            "seed dryrun"
        ),
        "Pairs of texts": "loss prompt",
        "Memory and speed": "gradient_accumulation_steps dtype_policy",
    }
    former: ClassVar[Mapping[str, str]] = {
        "seeds": "--seed=0,1,2",
        "max_unknown_share": "--other_tokenizer",
        **dict.fromkeys(("query_prompt", "document_prompt"), '--prompt="query=..." or --prompt="document=..."'),
        "negative_columns": "names of columns that begin with negative",
        "exclude_ids": "a training file without these questions",
        "span_head": "SquadTask(..., span_head=...) in Python",
        **dict.fromkeys(
            ("albert_dropout", "random_depth_min"), "--config=FILE beside --init_from, a config.json that says it"
        ),
        **dict.fromkeys(
            ("classifier_dropout", "temperature", "weight_decay", "eval_batch_size", "jit_compile"),
            "FinetuningSettings in Python",
        ),
        **dict.fromkeys(
            ("depth", "lower_case", "keep_accents"), "albert_tf.load(MODEL, ...).save(FOLDER), and --init_from=FOLDER"
        ),
        "allow_pickle": "python -m albert_tf.convert_checkpoint --allow_pickle, and its output",
        "tensorboard": "history.csv",
        "num_warmup_steps": "the task's own warm-up",
    }

    tokenizer: str = setting(
        "", help="a .model, vocab .txt, folder or name on the hub; empty: the tokenizer in the model's folder"
    )
    other_tokenizer: bool = setting(
        False, help=f"{OTHER_TOKENIZER_HELP}, or knows less than four fifths of the training text's tokens"
    )
    teacher: str = setting(
        "", help="folder of a fine-tuned, larger model of the same task to learn from; for pairs any embedder"
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
    seeds: str = setting(
        "",
        flag="seed",
        help="seed for new weights, dropout and the order of examples, or several such as 0,1,2, which train a run "
        "each; empty: 0",
    )
    calibrate: bool = setting(
        True, help="divide the head by a temperature, so that its probabilities are right of the rows held out"
    )
    # Without flags.
    seed: int = 0
    jit_compile: bool = False
    num_warmup_steps: int = -1
    albert_dropout: float = -1.0
    classifier_dropout: float = -1.0
    weight_decay: float = 0.01
    temperature: float = 0.05
    eval_batch_size: int = 32
    tensorboard: bool = False

    def __post_init__(self):
        super().__post_init__()
        refuse({
            "give --data_file=reviews.csv, one table of your own, or --data_dir=..., a folder with a task's files":
                bool(self.data_file) == bool(self.data_dir),
            "give --init_from=... to start from trained weights, or --config=... to start from scratch":
                not (self.init_from or self.config),
            "--num_train_steps and --num_train_epochs exclude each other; give one":
                self.num_train_steps and self.num_train_epochs,
        })  # fmt: skip
        seeds = self.seed_list()
        if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > MAX_SEED:
            raise UserError(
                f"--seed={self.seeds or self.seed} must be from 0 to {MAX_SEED}, or different ones such as 3,7,11"
            )
        object.__setattr__(self, "seed", seeds[0])

    def seed_list(self) -> list[int]:
        """Returns the seeds of all runs; [-1] for text that is none."""
        try:
            return [int(part) for part in self.seeds.split(",")] if self.seeds else [self.seed]
        except ValueError:
            return [-1]


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
