"""The nine GLUE tasks, from the files of gluebenchmark.com."""

from pathlib import Path

from albert_tf.tasks.task import Hyperparameters
from albert_tf.tasks.text_task import SplitFile, TextTask, split_files

_ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}
_NLI = {name: name for name in ("contradiction", "entailment", "neutral")}
_COLA = ("source", "label", "star", "sentence")
_MNLI_DEV, _MNLI_TEST = ("dev_matched", "dev_mismatched"), ("test_matched", "test_mismatched", "diagnostic")


def _defaults(rate: float, batch: int, steps: int, warmup: int, albert_dropout: float = 0.0) -> Hyperparameters:
    # Rate, batch, steps and warm-up are google-research/albert's run_glue.sh (WNLI is not there: recalled from the
    # paper's table 14, as all dropouts are).
    return Hyperparameters(rate, batch, steps, num_warmup_steps=warmup, albert_dropout=albert_dropout)


def _named(*names: str) -> dict[str, str]:
    return {str(number): name for number, name in enumerate(names)}


_ONE = ("sentence",)
_TWO = ("sentence1", "sentence2")

GLUE = {
    "cola": {
        "inputs": _ONE,
        "label_names": _named("unacceptable", "acceptable"),
        "metrics": ("matthews", "accuracy"),
        "splits": {split: SplitFile(split, _COLA) for split in ("train", "dev")} | split_files("test"),
        "submissions": {"test": "CoLA"},
        "defaults": _defaults(1e-5, 16, 5336, 320),
    },
    "sst2": {
        "inputs": _ONE,
        "label_names": _named("negative", "positive"),
        "submissions": {"test": "SST-2"},
        "defaults": _defaults(1e-5, 32, 20935, 1256),
    },
    "mrpc": {
        "inputs": _TWO,
        "columns": ("#1 String", "#2 String"),
        "label_column": "Quality",
        "label_names": _named("not_equivalent", "equivalent"),
        "metrics": ("accuracy", "f1"),
        "submissions": {"test": "MRPC"},
        "defaults": _defaults(2e-5, 32, 800, 200),
    },
    "stsb": {
        "kind": "regression",
        "inputs": _TWO,
        "label_column": "score",
        "label_names": None,
        "metrics": ("pearson", "spearman"),
        "range": (0.0, 5.0),
        "submissions": {"test": "STS-B"},
        "defaults": _defaults(2e-5, 16, 3598, 214),
    },
    "qqp": {
        "inputs": ("question1", "question2"),
        "label_column": "is_duplicate",
        "label_names": _named("not_duplicate", "duplicate"),
        "metrics": ("accuracy", "f1"),
        "submissions": {"test": "QQP"},
        "index_column": "id",
        # Some rows of the published file are cut off in the middle of a question.
        "skip_broken": True,
        "defaults": _defaults(5e-5, 128, 14000, 1000, albert_dropout=0.1),
    },
    "mnli": {
        "inputs": _TWO,
        "label_column": "gold_label",
        "label_names": _NLI,
        "no_label": "-",
        "splits": split_files("train", *_MNLI_DEV, *_MNLI_TEST),
        "evaluation_splits": _MNLI_DEV,
        "test_splits": _MNLI_TEST,
        "submissions": dict(zip(_MNLI_TEST, ("MNLI-m", "MNLI-mm", "AX"))),
        "defaults": _defaults(3e-5, 128, 10000, 1000),
    },
    "qnli": {
        "inputs": ("question", "sentence"),
        "label_names": _ENTAILMENT,
        "submissions": {"test": "QNLI"},
        "defaults": _defaults(1e-5, 32, 33112, 1986),
    },
    "rte": {
        "inputs": _TWO,
        "label_names": _ENTAILMENT,
        "submissions": {"test": "RTE"},
        "defaults": _defaults(3e-5, 32, 800, 200, albert_dropout=0.1),
    },
    "wnli": {
        "inputs": _TWO,
        "label_names": _named("not_entailment", "entailment"),
        "submissions": {"test": "WNLI"},
        "defaults": _defaults(2e-5, 16, 2000, 250, albert_dropout=0.1),
    },
}


def glue_task(name: str, data_dir: str) -> TextTask:
    """Makes a GLUE task, such as "sst2", from the files in a folder."""
    values = GLUE[name]
    standard = {"kind": "classification", "columns": values["inputs"], "label_column": "label"}
    standard |= {"metrics": ("accuracy",), "index_column": "index", "published": True}
    return TextTask(name=name, data_dir=Path(data_dir), **standard | values)
