"""Trains a vocabulary: ALBERT's SentencePiece, or with --kind=bpe RoBERTa's byte-level BPE.

python -m tfrecords.train_tokenizer --input='corpus/*.txt' --output_prefix=data/spm --vocab_size=30000
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfrecords import corpus
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar, run_main, say_next
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.tokenizers.training import bpe_listing, train_bpe, train_tokenizer, vocabulary_listing


@dataclass(frozen=True)
class TokenizerSettings(CheckedSettings):
    """What the vocabulary is trained on, and how it is made."""

    input: str = setting(help="Comma-separated globs of text or JSON lines files, each also .gz.")
    output_prefix: str = setting(help="Writes PREFIX.model, of a BPE PREFIX.json, and PREFIX.vocab.")
    kind: str = setting(
        "sentencepiece",
        help="sentencepiece: as ALBERT; bpe: byte-level BPE as RoBERTa, which keeps all text as it is.",
        choices=("sentencepiece", "bpe"),
    )
    vocab_size: int = setting(30000, help="Number of pieces.", at_least=32)
    character_coverage: float = setting(
        0.99995, help="Share of the characters that get a piece; 0.9995 suits Chinese.", at_least=0.9, at_most=1.0
    )
    hard_vocab_limit: bool = setting(
        True, help="Fail when the corpus is too small for --vocab_size; off: make fewer pieces."
    )
    lower_case: bool = setting(True, help="Lower-case the text; a BPE never does.")
    keep_accents: bool = setting(
        False, help="Keep accents, which ALBERT strips: German schön is then another word than schon."
    )
    max_lines: int = setting(2_000_000, help="Train on the first this many lines of text.", at_least=1)
    text_field: str = setting("text", help="Field of a JSON line that holds the text.")

    def __post_init__(self):
        super().__post_init__()
        if self.kind == "bpe" and self.keep_accents:
            raise UserError("--kind=bpe keeps accents anyway; leave out --keep_accents")
        if self.kind == "bpe" and self.character_coverage != type(self).character_coverage:
            raise UserError("--kind=bpe has a piece for every byte; leave out --character_coverage")


def _lines(patterns: str, text_field: str, limit: int) -> Iterator[str]:
    documents = corpus.read_documents(patterns, text_field)
    lines = (line for document in documents for line in document)
    return progress_bar(itertools.islice(lines, limit), desc="reading", unit=" lines")


def main(settings: TokenizerSettings) -> None:
    """Trains a vocabulary and writes it with its listing."""
    corpus.find_files(settings.input)
    prefix = Path(settings.output_prefix)
    files.make_output_dir(prefix.parent)
    lines = _lines(settings.input, settings.text_field, settings.max_lines)
    is_bpe = settings.kind == "bpe"
    if is_bpe:
        vocabulary = train_bpe(lines, settings.vocab_size, settings.hard_vocab_limit)
    else:
        vocabulary = train_tokenizer(
            lines,
            settings.vocab_size,
            settings.lower_case,
            settings.character_coverage,
            settings.hard_vocab_limit,
            settings.keep_accents,
        )
    path = Path(f"{prefix}.json" if is_bpe else f"{prefix}.model")
    listing = bpe_listing(vocabulary) if is_bpe else vocabulary_listing(vocabulary)
    with files.replacing(f"{prefix}.vocab") as temporary:
        temporary.write_text(listing, encoding="utf-8")
    with files.replacing(path) as temporary:
        temporary.write_bytes(vocabulary)
    print(f"wrote {path} and {prefix}.vocab: {listing.count(chr(10)):,} pieces, sha256 {files.sha256(path)}")
    say_next(
        f"python -m tfrecords.create_pretraining_data --input='{settings.input}' --output_dir=data --tokenizer={path}"
    )


def run() -> None:
    """Runs the command with the flags that it was given."""
    run_main(main, TokenizerSettings)


if __name__ == "__main__":
    run()
