"""Records to the byte, and the batches that are read of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .commands import preload, run
from .groups import Case, Folders
from .places import take
from .stored import contents
from .texts import corpus, wordpiece

_COMMON = ("--max_seq_length=32", "--held_out_fraction=0.1", "--seed=1", "--workers=1", "--max_unknown_share=1")
BUILDS = {
    "static": ("--masking=static", "--max_predictions_per_seq=5"),
    "dynamic": ("--masking=dynamic", "--max_predictions_per_seq=5"),
    "static twice, shards": ("--dupe_factor=2", "--chunk_megabytes=0.01"),
    "single words": ("--ngram=1", "--masked_lm_prob=0.3"),
    "pieces": ("--nowhole_words", "--pair_task=nsp"),
    "no pair": ("--pair_task=none", "--short_seq_prob=0.5"),
    "sentence pairs": ("--input_format=sentence-pair",),
    "full sentences": ("--input_format=full-sentences", "--pair_task=none", "--masking=dynamic"),
    "doc sentences": ("--input_format=doc-sentences", "--pair_task=none"),
    "permutation": ("--objective=permutation",),
    "permutation, no reuse": ("--objective=permutation", "--streams=4", "--reuse_length=0"),
}
# By another tokenizer than WordPiece.
OF_TOKENIZER = {
    "sentencepiece": ("static", "permutation"),
    "bpe": ("static", "full sentences"),
}


def cases(folders: Folders) -> Iterator[Case]:
    """Returns the cases of records."""
    yield "libraries", preload
    place = folders.write
    for kind in ("sentencepiece", "bpe"):
        yield f"a vocabulary, {kind}", vocabulary, kind, place, folders
    for name in BUILDS:
        yield f"records, {name}", build, name, "wordpiece", place, folders
    for kind, names in OF_TOKENIZER.items():
        for name in names:
            yield f"records, {name}, {kind}", build, name, kind, place, folders
    yield "what is said of records", inspected, place, folders
    # These start TensorFlow, and no process is forked from here on.
    for name in ("static", "dynamic", "full sentences"):
        for training in (True, False):
            yield f"batches, {name}, training {training}", batches, name, training, folders
    for training in (True, False):
        yield f"batches, permutation, training {training}", permutations, training, folders


def vocabulary(kind: str, place: Path, folders: Folders) -> dict[str, Any]:
    """A vocabulary that is trained."""
    text = corpus(place / "multilingual.txt", 60, multilingual=True)
    arguments = (f"--input={text}", f"--output_prefix={place / kind}", "--vocab_size=440", "--nohard_vocab_limit")
    found = run("tfrecords.train_tokenizer", *arguments, f"--kind={kind}", folders=folders)
    return found | {path.name: path.read_bytes() for path in sorted(place.glob(f"{kind}.*"))}


def tokenizer_file(kind: str, place: Path) -> Path:
    """Returns the file of a kind of tokenizer."""
    if kind == "wordpiece":
        return wordpiece(place / "vocab.txt")
    return place / ("bpe.json" if kind == "bpe" else "sentencepiece.model")


def build(name: str, kind: str, place: Path, folders: Folders) -> dict[str, Any]:
    """The files of a build, each record file to the byte."""
    text = corpus(place / "multilingual.txt", 60, multilingual=True)
    folder = place / f"{name}_{kind}".replace(", ", "_").replace(" ", "_")
    arguments = (f"--input={text}", f"--output_dir={folder}", f"--tokenizer={tokenizer_file(kind, place)}")
    found = run("tfrecords.create_pretraining_data", *arguments, *_COMMON, *BUILDS[name], folders=folders)
    for path, value in contents(folder).items():
        found[path] = value.replace(str(place), "LEFT") if isinstance(value, str) else value
    for path in sorted(folder.glob("*.tfrecord")):
        found[f"bytes/{path.name}"] = path.read_bytes()
    return found


def inspected(place: Path, folders: Folders) -> dict[str, Any]:
    """What inspect_examples says."""
    found = {}
    for name in ("static", "dynamic", "permutation"):
        arguments = f"--input={place / f'{name}_wordpiece'}", "--sample=2"
        found |= run("tfrecords.inspect_examples", *arguments, folders=folders, where=name)
    return found


def batches(name: str, training: bool, folders: Folders) -> dict[str, np.ndarray]:
    """The first batches that a reader gives of the records of before."""
    folder = folders.read / f"{name}_wordpiece".replace(" ", "_")
    found = {}
    for skip in (0, 3):
        for rows in (1, 2):
            read = take("read_examples")(str(folder), 4, training, seed=3, skip_batches=skip, examples_per_row=rows)
            for number, batch in enumerate(read.take(3)):
                found |= {f"{skip}, {rows}/{number}/{key}": value.numpy() for key, value in batch.items()}
    return found


def permutations(training: bool, folders: Folders) -> dict[str, np.ndarray]:
    """The first batches of permutation records."""
    found = {}
    for size in (0, 4):
        folder = str(folders.read / "permutation_wordpiece")
        read = take("read_permutations")(folder, 4, training, seed=3, perm_size=size)
        for number, batch in enumerate(read.take(3)):
            found |= {f"{size}/{number}/{key}": value.numpy() for key, value in batch.items()}
    return found
