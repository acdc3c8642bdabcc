"""Several labels a text: ways of training that are not for them, and their figures. (Answers: test_calibration.py.)"""

import json

import numpy as np
import pytest

from albert_tf import AlbertClassifier
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from tests.albert_tf.training.classes import CONFIG_OF_TABLES, write_start
from tests.refusals import assert_refused, lines

LABELS = ["anger", "fear", "joy"]
ROWS = [("bad", ["anger", "fear"]), ("good", ["joy"]), ("so", []), ("bad good", ["joy", "anger", "fear"])]


def settings_of(folder):
    (folder / "data").mkdir()
    lines = (json.dumps({"text": text, "label": labels}) + "\n" for text, labels in ROWS)
    (folder / "data" / "train.jsonl").write_text("".join(lines))
    return FinetuningSettings(
        task="multilabel", data_dir=str(folder / "data"), output_dir=str(folder / "run"),
        num_train_steps=1, **write_start(folder)
    )  # fmt: skip


REFUSED = """
--class_weights=balanced => --class_weights is for tasks that give every text a class
--early_exit => --early_exit is for classification, regression, tagging
--teacher=ONE => --teacher shows probabilities of one label a text
--init_from=ONE --config= --keep_head => fine-tuned for the kind multilabel; that of --init_from=.* has one label
"""


def test_other_ways_of_training_are_refused(tmp_path):
    settings, one = settings_of(tmp_path), tmp_path / "one.keras"
    # A head of one label a text is no start for several.
    AlbertClassifier(CONFIG_OF_TABLES, 3, labels=LABELS).save(one)
    for line in lines(REFUSED.replace("ONE", str(one))):
        assert_refused(line, settings, finetuning.finetune)


def test_figures_are_the_means_of_labels_and_of_all_together(tmp_path):
    task = create_task(settings_of(tmp_path))
    # Little above even odds is enough.
    outputs = 0.3 * np.array([[1, -1, -1], [-1, -1, 1], [1, -1, -1], [1, 1, -1]])
    # anger: 2 right of 3 given and 2 there; fear: 1 of 1 and 2; joy: 1 of 1 and 2.
    figures = task.score(task.read("train"), None, outputs)
    assert figures == pytest.approx({"macro_f1": (4 / 5 + 2 / 3 + 2 / 3) / 3, "micro_f1": 8 / 11})
