"""Trains a vocabulary (SentencePiece, or byte-level BPE with --kind=bpe), or adds words to one.

python -m tfrecords.train_tokenizer --input='corpus/*.txt' --output_prefix=data/spm --vocab_size=30000
python -m tfrecords.train_tokenizer --add_to=bert-base-uncased --input='notes/*.txt' --output_prefix=larger
"""

import itertools
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar, run_main, say_next
from tfrecords.base.settings import setting
from tfrecords.building.settings import TextSettings
from tfrecords.corpus import find_files, read_documents
from tfrecords.corpus.documents import warn_of_markup
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.adding import add_words, frequent_words
from tfrecords.tokenizers.vocabularies.training import train_bpe, train_tokenizer

# Settings of a vocabulary that is trained.
_OF_TRAINING = ("kind", "vocab_size", "character_coverage", "hard_vocab_limit", "lower_case", "keep_accents")


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(TextSettings):
    """What text to train on, and what vocabulary to make."""

    output_prefix: str = setting(
        help="Prefix of the file to write: PREFIX.model, for a BPE PREFIX.json; with --add_to the folder PREFIX."
    )
    add_to: str = setting(
        "",
        help="Tokenizer to add words to, a file or folder of any kind, instead of training: the words of "
        "--words, or those of --input that it splits into most pieces.",
    )
    words: str = setting("", help="With --add_to: file of the words to add, one a line.")
    max_words: int = setting(1000, help="With --add_to and --input: largest number of words to add.", at_least=1)
    max_lines: int = setting(
        2_000_000, help="Most lines to read; of a larger corpus so many are drawn from all of it.", at_least=1
    )
    kind: str = setting(
        "sentencepiece",
        help="sentencepiece: as for ALBERT; bpe: byte-level BPE as for RoBERTa, which leaves all text unchanged.",
        choices=("sentencepiece", "bpe"),
    )
    vocab_size: int = setting(30000, help="Number of pieces.", at_least=32)
    character_coverage: float = setting(
        0.99995, help="Share of the characters that get a piece; 0.9995 suits Chinese.", at_least=0.9, at_most=1.0
    )
    hard_vocab_limit: bool = setting(
        True, help="Fail if the corpus is too small for --vocab_size; otherwise make fewer pieces."
    )

    def __post_init__(self):
        super().__post_init__()
        if bool(self.input) == bool(self.words):
            raise UserError("give --input=FILES with the text" + ", or --words=FILE with the words" * bool(self.add_to))
        if self.add_to and (given := self.given(_OF_TRAINING)):
            raise UserError(f"{given} is for a vocabulary to train; leave it out with --add_to")
        if not self.add_to and (given := self.given(("words", "max_words"))):
            raise UserError(f"{given} needs --add_to=TOKENIZER")
        if self.kind == "bpe" and (given := self.given(("keep_accents", "character_coverage"))):
            raise UserError(f"{given} is for --kind=sentencepiece; leave it out")


def _lines(settings: TokenizerSettings) -> Iterator[str]:
    def read() -> Iterator[str]:
        return itertools.chain.from_iterable(read_documents(settings.input, settings.text_field))

    warn_of_markup(find_files(settings.input), settings.text_field)
    count = sum(1 for _ in progress_bar(read(), desc="counting", unit=" lines"))
    if count > settings.max_lines:
        print(
            f"{settings.max_lines:,} of {count:,} lines are drawn from all of the text; see --max_lines",
            file=sys.stderr,
        )
    return progress_bar(drawn(read(), count, settings.max_lines), desc="reading", unit=" lines")


def drawn(lines: Iterable[str], count: int, most: int) -> Iterator[str]:
    """Yields at most `most` of `count` lines, each equally likely, in their order; always the same ones.

    >>> list(drawn("abcdef", 6, 3)), list(drawn("ab", 2, 3))
    (['c', 'd', 'f'], ['a', 'b'])
    """
    random_, most = random.Random(0), min(count, most)
    for left, line in zip(range(count, 0, -1), lines):
        if random_.random() * left < most:
            most -= 1
            yield line


def main(settings: TokenizerSettings) -> None:
    """Trains or extends a vocabulary."""
    if settings.add_to:
        _add(settings)
        return
    find_files(settings.input)
    with files.output_folder(Path(settings.output_prefix).parent):
        _train(settings, Path(settings.output_prefix))


def _train(settings: TokenizerSettings, prefix: Path) -> None:
    lines = _lines(settings)
    if settings.kind == "bpe":
        vocabulary, path = train_bpe(lines, settings.vocab_size, settings.hard_vocab_limit), Path(f"{prefix}.json")
    else:
        vocabulary = train_tokenizer(
            lines,
            settings.vocab_size,
            settings.lower_case is not False,
            settings.character_coverage,
            settings.hard_vocab_limit,
            bool(settings.keep_accents),
        )
        path = Path(f"{prefix}.model")
    files.write(path, vocabulary)
    print(f"wrote {path}: {load_tokenizer(path).vocab_size:,} pieces, sha256 {files.sha256(path)}")
    say_next(
        f"python -m tfrecords.create_pretraining_data --input='{settings.input}' --output_dir=data --tokenizer={path}"
    )


def _add(settings: TokenizerSettings) -> None:
    former = load_tokenizer(settings.add_to)
    folder = Path(settings.output_prefix)
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--output_prefix={folder} is a folder that holds files; name a new one")
    if settings.words:
        words = list(itertools.chain.from_iterable(read_documents(settings.words)))
    else:
        words = frequent_words(former, _lines(settings), settings.max_words)
    larger = add_words(former, words)
    if larger.sha256 == former.sha256:
        raise UserError("every word is one piece already; there is nothing to add")
    larger.save(folder)
    new = len(set(larger.pieces) - set(former.pieces))
    print(f"wrote {folder}: {larger.vocab_size:,} pieces, {new:,} of them new, in place of {former.vocab_size:,}")
    text = settings.input or "..."
    say_next(f"python -m tfrecords.create_pretraining_data --input='{text}' --output_dir=data --tokenizer={folder}")


def run() -> None:
    """Runs the command."""
    run_main(main, TokenizerSettings)


if __name__ == "__main__":
    run()
