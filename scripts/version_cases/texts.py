"""Vocabularies, a corpus and tables, small and the same wherever they are made."""

import json
import random
import string
from pathlib import Path

WORDS = "the a of in who what where paris france capital is river runs film fine dull cat sat mat two thousand good bad"
_LETTERS = [*string.ascii_lowercase, *string.digits, *",.?"]
PIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), *_LETTERS, *(f"##{one}" for one in _LETTERS),
    "##s", "un", "##ed", "schon", "##o", "é", "中", "文",
]  # fmt: skip
# Of many scripts, with what tokenizers trip over.
MULTILINGUAL = [
    "Paris is the capital of France, isn't it?",
    "  two   blanks\tand a tab \n",
    "",
    "unaffordable 1,234,567.89 dollars (approx.)",
    "Schöne Grüße aus der Straße! ÄÖÜ ß",
    "中文没有空格。日本語のテキスト、한국어 텍스트",
    "Привет, мир! Καλημέρα κόσμε",
    "café cafe\u0301 naïve ﬁne Ａｂｃ",  # noqa: RUF001
    "emoji 😀 👩‍👩‍👧 and zero\u200bwidth",
    "a fox <unk> dog <mask> [MASK] [SEP] </s> <s>",
    "ALL CAPS and MixedCase don't we'll they're",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    *(f"{'x' * length} end {'ab' * (length // 2)}" for length in (99, 100, 101, 199, 200, 201, 250)),
    "tabs\x00nulls\x7f\ufffd\u00a0spaces",
]


def wordpiece(path: Path) -> Path:
    """Writes a WordPiece vocabulary."""
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return path


def sentences(count: int, seed: int = 5) -> list[str]:
    """Returns sentences of known words, of 4 to 12 words."""
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS.split(), k=source.randint(4, 12))) + "." for _ in range(count)]


def noise(count: int) -> list[str]:
    """Returns words of random frequent letters: in them every order of merges and every longest piece counts."""
    source = random.Random(11)
    letters = "aaeeiinnrssttdfoumcp"
    words = ["".join(source.choices(letters, k=source.randint(2, 14))) for _ in range(count * 8)]
    return [" ".join(words[8 * i : 8 * i + 8]) for i in range(count)]


def corpus(path: Path, documents: int = 60, multilingual: bool = False) -> Path:
    """Writes documents, a sentence a line and a blank line between two."""
    source, lines = random.Random(7), iter(sentences(documents * 9))
    texts = ["\n".join(next(lines) for _ in range(source.randint(3, 9))) for _ in range(documents)]
    if multilingual:
        others = [text.strip() for text in MULTILINGUAL if text.strip() and "\x00" not in text]
        texts = [
            f"{text}\n{others[i % len(others)]}\n{line}" for i, (text, line) in enumerate(zip(texts, noise(documents)))
        ]
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return path


def tables(folder: Path) -> Path:
    """Writes a folder of data for each kind of task: classes, numbers, tags, squad, race."""
    source = random.Random(6)
    for name in ("classes", "numbers", "tags", "squad", "race/train/middle", "race/dev/middle", "race/test/middle"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 40), ("dev", 16)):
        texts, seconds = sentences(count, count), sentences(count, count + 1)
        classes = ["good" if "fine" in text or "paris" in text else "bad" for text in texts]
        rows = "".join(f"{text}\t{label}\n" for text, label in zip(texts, classes))
        (folder / "classes" / f"{split}.tsv").write_text(f"text\tlabel\n{rows}")
        rows = "".join(f"{a}\t{b}\t{len({*a.split()} & {*b.split()})}\n" for a, b in zip(texts, seconds))
        (folder / "numbers" / f"{split}.tsv").write_text(f"text\tother\tlabel\n{rows}")
        tags = [{"text": t.split(), "label": ["B-X" if w == "cat" else "O" for w in t.split()]} for t in texts]
        (folder / "tags" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tags))
        paragraphs = []
        for number, text in enumerate(texts):
            words = text.split()
            answer = words[source.randrange(len(words) - 1)]
            answers = [{"text": answer, "answer_start": text.index(answer)}]
            none = number % 4 == 3
            question = {"id": f"{split}{number}", "question": f"what is {answer}?", "is_impossible": none}
            paragraphs.append({"context": text, "qas": [question | {"answers": [] if none else answers}]})
        data = {"version": "v2.0", "data": [{"title": "a", "paragraphs": paragraphs}]}
        (folder / "squad" / f"{split}-v2.0.json").write_text(json.dumps(data))
        for number in range(count // 4):
            options = [source.choices(WORDS.split(), k=2) for _ in range(4)]
            row = {"article": texts[number], "questions": ["who sat in _ ?"], "answers": ["ABCD"[number % 4]]}
            row["options"] = [[" ".join(option) for option in options]]
            (folder / "race" / split / "middle" / f"{number}.txt").write_text(json.dumps(row))
    (folder / "classes" / "test.tsv").write_text("text\n" + "\n".join(sentences(5, 3)) + "\n")
    (folder / "race" / "test" / "middle" / "0.txt").write_text(json.dumps(row))
    return folder
