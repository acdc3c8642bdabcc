"""Allowed values of settings; imports no TensorFlow, so that --help is fast."""

from typing import NamedTuple

OPTIMIZERS = ("lamb", "adamw", "muon")
DTYPE_POLICIES = ("float32", "mixed_bfloat16")
STRATEGIES = ("none", "mirrored", "multi_worker")
# Tasks of a user's own tables, and all; without a name, the labels decide.
OWN_KINDS = ("classification", "multilabel", "regression", "tagging")
TASKS = (
    "", "cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "squad1", "squad2", "pairs", "race",
    *OWN_KINDS,
)  # fmt: skip
DEPTH_HELP = "number of layers to run, for a model that shares blocks; 0: as many as it has"
ALLOW_PICKLE_HELP = "read a model that has only PyTorch pickle weights; opening them can run code"
OTHER_TOKENIZER_HELP = "use --tokenizer though it is another tokenizer than the model was trained with"
# NumPy's maximum.
MAX_SEED = 2**32 - 1
FORMATS = ("official", "huggingface", "keras_hub", "keras")
WRITTEN_FORMATS = ("official", "huggingface", "keras")
# Criteria for early exit.
EXIT_RULES = ("confidence", "patience", "movement")


class PairRule(NamedTuple):
    """The settings and texts that a loss on pairs needs.

    Attributes:
        cuts: whether the loss can be added up at several widths of the vectors.
        documents: minimal number of texts of a row, besides the anchor (the query).
        most: maximal number of these texts; 0: no limit.
        compares: whether the loss compares a batch's rows with each other.
    """

    cuts: bool
    documents: int
    most: int = 0
    compares: bool = False


# The losses of models/pair_losses.py, in its order.
PAIR_LOSSES = {
    "multiple_negatives_ranking": PairRule(True, 1, compares=True),
    "cosent": PairRule(True, 1, 1, compares=True),
    "triplet": PairRule(True, 2),
    "mse": PairRule(False, 0),
    "margin_mse": PairRule(False, 2),
}

# The numbers that a search compares.
VECTORS = ("float32", "int8")
