"""Small tables of the tasks that fine-tuning is tried on, and the model that a run begins with."""

import json

import numpy as np

from albert_tf.training.finetuning import Finetuning
from albert_tf.training.loop.devices import Devices
from albert_tf.training.preparation import prepare
from tests.albert_tf.tiny import small
from tests.tfrecords.tokenizers.twins import wordpiece

WORDS = ("the class is a value", "an expression returns", "a loop of statements and names", "it raises")


def write_classes(folder, rows=40):
    """Sentences of the pre-training text's words; the class is whether there is a "good" in it."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(rows):
        text = " ".join(random.permutation([WORDS[number % 4], ("good" if number % 2 else "bad"), "object"]))
        lines.append(f"{text}\t{'yes' if number % 2 else 'no'}")
    for split, part in (("train", lines[:-8]), ("dev", lines[-8:])):
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(part) + "\n")
    (folder / "test.tsv").write_text("text\na good value\nbad\n")


def write_pairs(folder, rows=40):
    """Anchors and positives with a number in common; each anchor has two rows, and each positive."""
    texts = [f"{number // 2}\t{WORDS[number % 4]} {number // 2}" for number in range(rows)]
    for split, part in (("train", texts[:-8]), ("dev", texts[-8:])):
        (folder / f"{split}.tsv").write_text("anchor\tpositive\n" + "\n".join(part) + "\n")


WORDS_OF_TABLES = wordpiece("good", "bad", "so")
CONFIG_OF_TABLES = small(
    vocab_size=8, embedding_size=16, num_hidden_layers=1, max_position_embeddings=16, initializer_range=0.4
)


def write_start(folder):
    """Writes a configuration of a model and a vocabulary of three words; returns them as settings."""
    CONFIG_OF_TABLES.to_json(folder / "config.json")
    (folder / "vocab.txt").write_bytes(WORDS_OF_TABLES.vocabulary)
    return {"config": str(folder / "config.json"), "tokenizer": str(folder / "vocab.txt"), "max_seq_length": 16}


def write_other_task(folder, name):
    if name == "tagging":
        rows = [{"text": ["the", "class", "runs"], "label": ["O", "B-X", "O"]}] * 9
        for split in ("train", "dev"):
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "race":
        row = {"article": "a class " * 9, "questions": ["what _"], "options": [["a", "b", "c", "d"]], "answers": ["B"]}
        for path in ("train/middle", "dev/high", "test/high"):
            (folder / path).mkdir(parents=True)
            for number in range(4):
                (folder / path / f"{number}.txt").write_text(json.dumps(row))
    else:
        rows = "".join(f"the class\ta loop {i}\t{i / 2}\n" for i in range(9))
        for split in ("train", "dev"):
            (folder / f"{split}.tsv").write_text("text\tother\tlabel\n" + rows)


def begun(settings):
    """Returns the model that a run of these settings begins with."""
    return Finetuning(prepare(settings), Devices(), 0.0).new_model()
