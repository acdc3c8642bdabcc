"""Several labels a text: read, trained, scored, answered by `predict` and exports."""

import csv
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertConfig, load
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from albert_tf.training.distillation import load_teacher
from serving.exportable import ExportOptions, make_exportable
from tests.albert_tf.tiny import graphs, small
from tests.refusals import assert_refused, lines, refused

LABELS = ["anger", "fear", "joy"]
ROWS = [("bad", ["anger", "fear"]), ("good", ["joy"]), ("so", []), ("bad good", ["joy", "anger", "fear"])]
SIZES = {"vocab_size": 8, "embedding_size": 32, "hidden_size": 32, "num_hidden_layers": 1, "initializer_range": 0.2}
CONFIG = small(**SIZES, hidden_dropout_prob=0, attention_probs_dropout_prob=0)


def settings_of(folder):
    (folder / "data").mkdir()
    for split in ("train", "dev"):
        lines = (json.dumps({"text": text, "label": labels}) + "\n" for text, labels in ROWS * 4)
        (folder / "data" / f"{split}.jsonl").write_text("".join(lines))
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "so"]))
    CONFIG.to_json(folder / "config.json")
    return FinetuningSettings(
        task="multilabel", data_dir=str(folder / "data"), output_dir=str(folder / "run"),
        config=str(folder / "config.json"), tokenizer=str(folder / "vocab.txt"), learning_rate=1e-2,
        train_batch_size=16, num_train_steps=30, save_checkpoints_steps=30, classifier_dropout=0.0
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory, eagerly):
    with graphs():
        return finetuning.finetune(settings_of(tmp_path_factory.mktemp("multilabel")))


def test_a_trained_model_gives_every_label_a_probability(trained):
    task = json.loads((trained / "task.json").read_text())
    assert (task["kind"], task["labels"], task["threshold"]) == ("multilabel", LABELS, 0.5)
    loaded = load(trained)
    with open(trained / "predictions" / "dev.tsv", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))[: len(ROWS)]
    outputs = np.array([[float(line[f"logit:{name}"]) for name in LABELS] for line in lines])
    answers = loaded.predict([text for text, _ in ROWS])
    for line, logits, answer, (_, labels) in zip(lines, outputs, answers, ROWS, strict=True):
        given = [name for name, logit in zip(LABELS, logits) if logit > 0]
        assert json.loads(line["prediction"]) == answer["labels"] == given
        assert json.loads(line["label"]) == sorted(labels)
        assert_allclose(list(answer["probabilities"].values()), 1 / (1 + np.exp(-logits)), atol=1e-5)
    settings = FinetuningSettings(task="multilabel", data_dir=str(trained.parent / "data"), output_dir="", config="x")
    multilabel = create_task(settings, task)
    assert multilabel.score(multilabel.read("dev")[: len(ROWS)], None, outputs) == pytest.approx(task["metrics"])
    assert task["metrics"]["micro_f1"] > 0.7
    exportable = make_exportable(loaded.model, ExportOptions(16, task=task))
    exported = exportable.outputs(np.log([[3.0, 1 / 3, 1]]).astype("float32"), None)
    assert_allclose(exported["probabilities"], [[0.75, 0.25, 0.5]], rtol=1e-6)
    assert exported["labels"].numpy().tolist() == [[b"anger", b"", b""]] and exported["label"].numpy() == [b"anger"]


REFUSED = """
--class_weights=balanced => --class_weights is for tasks that give every text a class
--early_exit => --early_exit is for classification, regression, tagging
--teacher=TRAINED => --teacher shows probabilities of one label a text
--init_from=ONE --config= --keep_head => fine-tuned for the kind multilabel; that of --init_from=.* has one label
"""


def test_other_ways_of_training_are_refused(tmp_path, trained):
    settings, one = settings_of(tmp_path), tmp_path / "one.keras"
    # A head of one label a text is no start for several.
    AlbertClassifier(CONFIG, 3, labels=LABELS).save(one)
    for line in lines(REFUSED.replace("TRAINED", str(trained)).replace("ONE", str(one))):
        assert_refused(line, settings, finetuning.finetune)
    model = AlbertClassifier(AlbertConfig.named("albert_tiny"), 3, multi_label=True)
    with refused("leave it out for --task=multilabel"):
        load_teacher("", model, None, 16, None)


def test_figures_are_the_means_of_labels_and_of_all_together(tmp_path):
    task = create_task(settings_of(tmp_path))
    # Little above even odds is enough.
    outputs = 0.3 * np.array([[1, -1, -1], [-1, -1, 1], [1, -1, -1], [1, 1, -1]])
    # anger: 2 right of 3 given and 2 there; fear: 1 of 1 and 2; joy: 1 of 1 and 2.
    figures = task.score(task.read("train")[:4], None, outputs)
    assert figures == pytest.approx({"macro_f1": (4 / 5 + 2 / 3 + 2 / 3) / 3, "micro_f1": 8 / 11})
