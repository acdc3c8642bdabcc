"""The text of a document alone decides whether it is held out."""

import gzip
import json
import random
import unicodedata

import pytest

from tests.tfrecords.batches import features_of
from tests.tfrecords.conftest import build_text
from tests.tfrecords.tokenizers.twins import wordpiece

WORDS = [f"w{number}" for number in range(300)]
NUMBERS = wordpiece(*WORDS, "é", ".")


def documents(count=40):
    draw = random.Random(1)
    return ["\n".join(" ".join([*draw.choices(WORDS, k=8), "é."]) for _ in range(5)) for _ in range(count)]


def as_json(texts, line_end="\n"):
    return line_end.join(json.dumps({"text": text}) for text in texts).encode()


# Each writes the same documents otherwise.
LAYOUTS = {
    "a file": lambda texts: {"a.txt": "\n\n".join(texts).encode()},
    "a file with a line end": lambda texts: {"a.txt": "\n\n".join(texts).encode() + b"\n"},
    "a file each": lambda texts: {f"{number:03d}.txt": f"{text}\n".encode() for number, text in enumerate(texts)},
    "joined files with marks": lambda texts: {"a.txt": "".join(f"\ufeff{text}\n\n\n" for text in texts).encode()},
    "gzip": lambda texts: {"a.txt.gz": gzip.compress(("\r\n\r\n".join(texts) + "\r\n").encode())},
    "other line ends": lambda texts: {"a.txt": "\n\n".join(texts).replace("\n", "\r").encode()},
    "JSON": lambda texts: {"a.jsonl": as_json(texts)},
    "JSON and another way each": lambda texts: {
        "a.jsonl": as_json(
            [OTHER_WAYS[number % len(OTHER_WAYS)](text) for number, text in enumerate(texts)], "\r\n\r\n"
        )
    },
}
OTHER_WAYS = [
    lambda text: f"{text}\n",
    lambda text: f" \n\n{text} \t",
    lambda text: text.replace("\n", "\n\n \n"),
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace("\n", " \n\t"),
    lambda text: text.replace(" ", "  ").replace("  w", "\u00a0w", 1),
    lambda text: unicodedata.normalize("NFD", text),
]
SETTINGS = {
    "lines": {},
    "split": {"split_sentences": True},
    "a document a line": {"line_documents": True, "pair_task": "none"},
}


def build(folder, contents, tokenizer, **settings):
    return build_text(folder, contents, tokenizer, **{"held_out_fraction": 0.3} | settings)


@pytest.mark.parametrize("settings", SETTINGS)
def test_how_documents_lie_in_files_decides_nothing(tmp_path, settings):
    texts = documents()
    first = None
    for name, layout in LAYOUTS.items():
        made = build(tmp_path / name.replace(" ", "_"), layout(texts), NUMBERS, **SETTINGS[settings])["splits"]
        first = first or made
        for split in ("train", "eval"):
            assert made[split]["documents"] == first[split]["documents"] > 3, name
            # Blanks inside a line and normal forms, which some tokenizers keep, may decide masks and the order of rows.
            if name not in ("JSON and another way each", "joined files with marks"):
                assert made[split]["files"][0]["sha256"] == first[split]["files"][0]["sha256"], name
    everything = {f"{number}{name}": data for number, layout in enumerate(LAYOUTS.values())
                  for name, data in layout(texts).items()}  # fmt: skip
    both = build(tmp_path / "all", everything, NUMBERS, **SETTINGS[settings])["splits"]
    for split in ("train", "eval"):
        assert both[split]["documents"] == len(LAYOUTS) * first[split]["documents"]


def test_train_and_eval_documents_are_apart(tmp_path):
    text = "\n\n".join(f"{word}\n{word}" for word in WORDS)
    splits = build(tmp_path, {"a.txt": text}, NUMBERS, masking="dynamic")["splits"]
    train, held_out = (
        {number for row in features_of(tmp_path / "data" / split["files"][0]["name"]) for number in row["input_ids"]}
        for split in splits.values()
    )
    assert train & held_out == {NUMBERS.cls_id, NUMBERS.sep_id}
    assert len(train | held_out) == len(WORDS) + 2
