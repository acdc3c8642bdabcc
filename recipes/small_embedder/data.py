"""Writes the texts and pairs that the small embedder learns from, without the sentences of held-out sets.

python recipes/small_embedder/data.py DATA OUT

Reads of DATA: corpus/wiki-en.jsonl.gz, glue/{CoLA,SST-2,MRPC,RTE,STS-B}/train.tsv[.gz],
embeddings/sick/SICK_train.txt.gz and embeddings/trecqa/train.csv.gz. Writes OUT/text/NAME.txt, a text a line;
OUT/pairs.csv, two texts that belong together or, of SICK and STS-B, are compared; and OUT/seen.json: the rows taken and
left out of each set.

Most rows of STS-B's training file are test pairs of the yearly STS sets (column `year`), so only its rows of 2012train
are taken. A text that equals one of a held-out set, apart from case and punctuation, is left out wherever it occurs.
SICK's splits share sentences, so its test set is no held-out one: report it apart.
"""

import collections
import csv
import gzip
import io
import itertools
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

csv.field_size_limit(1 << 24)

# Files of held-out sets, and the columns of their texts.
HELD_OUT = {
    "embeddings/sts12/*.test.tsv": (1, 2),
    "embeddings/sts14/*.test.tsv": (1, 2),
    "embeddings/sts15/*.test.tsv": (1, 2),
    "embeddings/trecqa/dev.csv.gz": (0, 2),
    "embeddings/banking77/test.csv": (0,),
    "glue/STS-B/dev.tsv": (7, 8),
}


def lines(path: Path) -> list[str]:
    """Returns a file's lines."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return content.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")


def table(path: Path) -> list[list[str]]:
    """Returns the cells of a file's rows, the header too."""
    if ".csv" in path.name:
        return list(csv.reader(io.StringIO("\n".join(lines(path)))))
    return [line.split("\t") for line in lines(path)]


def found(folder: Path, pattern: str) -> list[Path]:
    """Returns the files of a pattern; exits if there are none."""
    paths = sorted(folder.glob(pattern))
    if not paths:
        sys.exit(f"{folder / pattern}: no such file")
    return paths


def same(text: str) -> str:
    """Returns what two copies of a text have in common."""
    return re.sub(r"\W+", " ", text.lower()).strip()


class Taken:
    """Texts that may be learned from, and a count of those left out."""

    def __init__(self, data: Path):
        self.held_out = {
            same(row[column])
            for pattern, columns in HELD_OUT.items()
            for path in found(data, pattern)
            for row in table(path)
            for column in columns
            if column < len(row)
        }
        self.report: dict[str, dict[str, int]] = {}

    def rows(self, name: str, rows: Iterable[tuple[str, ...]], texts: int) -> list[tuple[str, ...]]:
        """Returns different rows whose first `texts` cells are in no held-out set."""
        different = list(dict.fromkeys(rows))
        kept = [row for row in different if not any(same(text) in self.held_out for text in row[:texts])]
        self.report[name] = {"taken": len(kept), "left_out": len(different) - len(kept)}
        return kept


def articles(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields Wikipedia's titles and paragraphs; headings are no paragraphs."""
    for line in lines(data / "corpus/wiki-en.jsonl.gz"):
        article = json.loads(line)
        yield article["title"], [one for one in article["text"].split("\n") if len(one) > 100]


def with_rare_words(texts: list[str], sentences: list[str], draw: random.Random) -> list[str]:
    """Returns the texts with a quarter of their words replaced by words of the sentences.

    Each different word that occurs three times or more is drawn as often as any other, so a model sees rare words of
    technical texts too. The teacher's vectors of such texts say what each word adds.
    """
    counts = collections.Counter(word for one in sentences for word in re.findall(r"[a-z]+", one.lower()))
    words = sorted(word for word, count in counts.items() if count >= 3)
    return [
        re.sub(r"\b[A-Za-z]+\b", lambda word: draw.choice(words) if draw.random() < 0.25 else word[0], one)
        for one in texts
    ]


def cells(data: Path, pattern: str, *columns: int, skip: int = 1) -> list[tuple[str, ...]]:
    """Returns columns of the rows of a file."""
    (path,) = found(data, pattern)
    return [tuple(row[one] for one in columns) for row in table(path)[skip:] if len(row) > max(columns)]


def sentences_of(paragraph: str) -> list[str]:
    """Returns a paragraph's sentences."""
    return [one for one in re.split(r"(?<=[.!?]) +", paragraph) if one]


def beginning(paragraph: str, length: int = 300) -> str:
    """Returns a paragraph's first sentence, and those after it up to `length` characters in all."""
    sentences = sentences_of(paragraph)
    ends = list(itertools.accumulate(len(one) + 1 for one in sentences))
    return " ".join(one for one, end in zip(sentences, ends) if end <= length + 1 or end == ends[0])


def of_training(data: Path) -> dict[str, list[tuple[str, ...]]]:
    """Returns pairs of texts from the training files of labelled sets."""
    stsb = cells(data, "glue/STS-B/train.tsv*", 7, 8, 3)
    trecqa = cells(data, "embeddings/trecqa/train.csv.gz", 0, 2, 1)
    return {
        "SICK train": cells(data, "embeddings/sick/SICK_train.txt.gz", 1, 2),
        "STS-B train (2012train)": [(first, second) for first, second, year in stsb if year == "2012train"],
        "TREC-QA train": [(question, answer) for question, answer, label in trecqa if label == "1"],
    }


def main(data: Path, out: Path) -> None:
    """Writes all files."""
    draw, taken = random.Random(0), Taken(data)
    wiki = list(articles(data))
    paragraphs = [one for _, texts in wiki for one in texts]
    sentences = [one for text in paragraphs for one in sentences_of(text) if 20 < len(one) <= 400]
    sentences = draw.sample(list(dict.fromkeys(sentences)), 320_000)
    labelled = of_training(data)
    glue = {"CoLA": (3,), "SST-2": (0,), "MRPC": (3, 4), "RTE": (1, 2)}
    texts = {
        "wiki_sentences": sentences[:260_000],
        "wiki_rare_words": with_rare_words(sentences[260_000:], sentences, draw),
        "wiki_paragraphs": draw.sample(paragraphs, 12_000),
        "wiki_titles": [title for title, _ in wiki],
    }
    for name, columns in glue.items():
        rows = cells(data, f"glue/{name}/train.tsv*", *columns, skip=name != "CoLA")
        kept = [one for row in rows for one in row]
        texts[name] = draw.sample(kept, min(len(kept), 12_000))
    for name, rows in labelled.items():
        texts[re.sub(r"\W+", "_", name).strip("_")] = [one for row in rows for one in row[:2]]
    (out / "text").mkdir(parents=True, exist_ok=True)
    for name, kept in texts.items():
        rows = taken.rows(f"text: {name}", ((one.strip(),) for one in kept if one.strip()), 1)
        (out / "text" / f"{name}.txt").write_text("".join(f"{row[0]}\n" for row in rows), encoding="utf-8")
    neighbours = [pair for _, texts in wiki for pair in itertools.pairwise(texts[:7])]
    passages = [beginning(one, 1_000) for one in draw.sample([one for one in paragraphs if len(one) > 400], 14_000)]
    passages[::2] = with_rare_words(passages[::2], sentences, draw)
    pairs = {
        "Wikipedia: title, first paragraph": [(title, beginning(texts[0])) for title, texts in wiki if texts],
        "Wikipedia: neighbouring paragraphs": [tuple(map(beginning, pair)) for pair in draw.sample(neighbours, 4_000)],
        "Wikipedia: sentence of a passage, the passage": [(draw.choice(sentences_of(one)), one) for one in passages],
    }
    rows = [row for name, some in (pairs | labelled).items() for row in taken.rows(f"pairs: {name}", some, 2)]
    with (out / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("anchor", "positive"), *rows])
    (out / "seen.json").write_text(json.dumps(taken.report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
