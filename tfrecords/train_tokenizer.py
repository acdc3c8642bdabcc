"""Trains an ALBERT SentencePiece vocabulary.

python -m tfrecords.train_tokenizer --input='corpus/*.txt' --output_prefix=data/spm --vocab_size=30000
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from tfrecords import corpus
from tfrecords.base import files
from tfrecords.base.progress import progress_bar
from tfrecords.base.script import run_main, say_next
from tfrecords.tokenizers.training import train_tokenizer, vocabulary_listing

_INPUT = flags.DEFINE_string("input", None, "Comma-separated globs of text or JSON lines files, each also .gz.")
_OUTPUT_PREFIX = flags.DEFINE_string("output_prefix", None, "Writes PREFIX.model and PREFIX.vocab.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30000, "Number of pieces.", lower_bound=32)
_CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage", 0.99995, "Share of the characters that get a piece; 0.9995 suits Chinese.", 0.9, 1.0
)
_HARD_VOCAB_LIMIT = flags.DEFINE_bool(
    "hard_vocab_limit", True, "Fail when the corpus is too small for --vocab_size; off: make fewer pieces."
)
_LOWER_CASE = flags.DEFINE_bool("lower_case", True, "Lower-case the text.")
_KEEP_ACCENTS = flags.DEFINE_bool(
    "keep_accents", False, "Keep accents, which ALBERT strips: German schön is then another word than schon."
)
_MAX_LINES = flags.DEFINE_integer("max_lines", 2_000_000, "Train on the first this many lines of text.", 1)
_TEXT_FIELD = flags.DEFINE_string("text_field", "text", "Field of a JSON line that holds the text.")


def _lines(patterns: str, text_field: str, limit: int) -> Iterator[str]:
    documents = corpus.read_documents(patterns, text_field)
    lines = (line for document in documents for line in document)
    return progress_bar(itertools.islice(lines, limit), desc="reading", unit=" lines")


def main() -> None:
    prefix = Path(_OUTPUT_PREFIX.value)
    files.make_output_dir(prefix.parent)
    lines = _lines(_INPUT.value, _TEXT_FIELD.value, _MAX_LINES.value)
    model = train_tokenizer(
        lines,
        _VOCAB_SIZE.value,
        _LOWER_CASE.value,
        _CHARACTER_COVERAGE.value,
        _HARD_VOCAB_LIMIT.value,
        _KEEP_ACCENTS.value,
    )
    listing = vocabulary_listing(model)
    with files.replacing(f"{prefix}.vocab") as temporary:
        temporary.write_text(listing, encoding="utf-8")
    with files.replacing(f"{prefix}.model") as temporary:
        temporary.write_bytes(model)
    digest = files.sha256(f"{prefix}.model")
    print(f"wrote {prefix}.model and {prefix}.vocab: {listing.count(chr(10)):,} pieces, sha256 {digest}")
    say_next(
        f"python -m tfrecords.create_pretraining_data --input='{_INPUT.value}' --output_dir=data "
        f"--tokenizer={prefix}.model" + ("" if _LOWER_CASE.value else " --nolower_case")
    )


def run() -> None:
    flags.mark_flags_as_required(["input", "output_prefix"])
    run_main(main)


if __name__ == "__main__":
    run()
