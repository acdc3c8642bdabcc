"""Shows training examples as text, and counts a sample or all of them.

python -m tfrecords.inspect_examples --input=data --examples=2
python -m tfrecords.inspect_examples --input=data --sample=0
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar, run_main
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.reading.manifest import (
    MANIFEST,
    SPLITS,
    check_files,
    find_records,
    listed_files,
    read_folder,
    read_manifest,
)

if TYPE_CHECKING:
    from tfrecords.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class InspectSettings(CheckedSettings):
    """Which records to show, and how many."""

    input: str = setting(help="Folder or comma-separated globs of record files.")
    split: str = setting("train", help="Part of a folder's files to read.", choices=SPLITS)
    examples: int = setting(3, help="Examples to print.", at_least=0)
    sample: int = setting(
        10000, help="Number of examples to count; 0 counts all, and checks every file's checksum.", at_least=0
    )


def main(settings: InspectSettings) -> None:
    """Shows examples and counts."""
    split, examples, sample = settings.split, settings.examples, settings.sample
    paths = find_records(settings.input, split)
    # Imported here: --help and wrong flags need no TensorFlow.
    from tfrecords.reader import read_examples
    from tfrecords.tokenizers.loading import load_tokenizer

    manifest, counts = read_manifest(map(str, paths)), check_files(paths, split)
    if sample == 0:
        _check_sums(paths)
    tokenizer = load_tokenizer(paths[0].parent)
    total = min(sample or sum(counts), sum(counts))
    tokens = predicted = ones = 0
    with progress_bar(total=total, desc="reading", unit=" examples") as bar:
        for batch in read_examples([str(path) for path in paths], 256, False).as_numpy_iterator():
            batch = {name: array[: total - bar.n] for name, array in batch.items()}
            for row in range(min(examples - bar.n, len(batch["input_ids"]))):
                tqdm.write(_readable(batch, row, tokenizer) + "\n", file=sys.stdout)
            tokens += int(batch["input_mask"].sum())
            predicted += int(batch["masked_lm_weights"].sum())
            ones += int(batch["next_sentence_labels"].sum())
            bar.update(len(batch["input_ids"]))
            if bar.n >= total:
                break
    print(
        f"{total:,} of {sum(counts):,} {split} examples: {tokens:,} tokens ({tokens / total:.1f} of "
        f"{manifest['max_seq_length']} an example), {predicted / tokens:.2%} predicted; {ones / total:.2%} have label 1"
    )


def _readable(features: dict[str, np.ndarray], row: int, tokenizer: "Tokenizer") -> str:
    """Returns an example as text, with predicted tokens as {word -> input} and the label last."""
    ids = features["input_ids"][row][features["input_mask"][row] > 0]
    pieces = [tokenizer.id_to_piece(int(i)) for i in ids]
    for slot in np.flatnonzero(features["masked_lm_weights"][row]):
        position, label = features["masked_lm_positions"][row, slot], features["masked_lm_ids"][row, slot]
        pieces[position] = f"{{{tokenizer.id_to_piece(int(label))} -> {pieces[position]}}}"
    return f"{' '.join(pieces)}\n  label {features['next_sentence_labels'][row, 0]}"


def _check_sums(paths: list[Path]) -> None:
    for path in progress_bar(paths, desc="checking", unit=" files"):
        listed = listed_files(read_folder(path.parent))
        if any(file["name"] == path.name and file["sha256"] != files.sha256(path) for file in listed):
            raise UserError(
                f"'{path}' is not what {MANIFEST} beside it says (checksum); copy it again or build it anew"
            )


def run() -> None:
    """Runs the command."""
    run_main(main, InspectSettings)


if __name__ == "__main__":
    run()
