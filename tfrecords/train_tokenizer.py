"""Trains an ALBERT SentencePiece vocabulary.

python -m tfrecords.train_tokenizer --input='corpus/*.txt' --output_prefix=data/spm --vocab_size=30000
"""

import io
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece
from absl import flags
from tqdm import tqdm

from tfrecords import corpus, files
from tfrecords.errors import UserError
from tfrecords.normalization import albert_normalizer, with_albert_normalization
from tfrecords.script import run_main

# google-research/albert's own: ids 0 to 4, and pieces that always stand alone (README, "training a vocabulary").
CONTROL_PIECES = ["[CLS]", "[SEP]", "[MASK]"]
USER_PIECES = ["(", ")", '"', "-", ".", "–", "£", "€"]  # noqa: RUF001

_INPUT = flags.DEFINE_string("input", None, "Comma-separated globs of text or JSON lines files, each also .gz.")
_OUTPUT_PREFIX = flags.DEFINE_string("output_prefix", None, "Writes PREFIX.model and PREFIX.vocab.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30000, "Number of pieces.", lower_bound=32)
_CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage", 0.99995, "Share of the characters that get a piece; 0.9995 suits Chinese.", 0.9, 1.0
)
_LOWER_CASE = flags.DEFINE_bool("lower_case", True, "Lower-case the text and strip accents.")
_MAX_LINES = flags.DEFINE_integer("max_lines", 2_000_000, "Train on the first this many lines of text.", 1)
_TEXT_FIELD = flags.DEFINE_string("text_field", "text", "Field of a JSON line that holds the text.")


def train_tokenizer(
    lines: Iterable[str], vocab_size: int, lower_case: bool = True, character_coverage: float = 0.99995
) -> bytes:
    """Trains a unigram model on the lines and returns it serialised, ALBERT's normalisation inside.

    The same lines and settings give the same bytes. Raises UserError when there is too little text for `vocab_size`.
    """
    normalizer = albert_normalizer(lower_case)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(normalizer.normalize, lines),
            model_writer=model,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            model_type="unigram",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="<pad>",
            unk_piece="<unk>",
            control_symbols=CONTROL_PIECES,
            user_defined_symbols=USER_PIECES,
            # Whatever the machine: the number of threads decides in which order floats are summed.
            num_threads=4,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _too_little_text(error, vocab_size) from error
    return with_albert_normalization(model.getvalue(), lower_case)


def _too_little_text(error: RuntimeError, vocab_size: int) -> UserError:
    limit = re.search(r"value <= (\d+)", str(error))
    if limit:
        return UserError(f"the corpus is too small for --vocab_size={vocab_size}; set it to {limit[1]} or less")
    if "sentences_.empty()" in str(error):
        return UserError("the corpus holds no text to train on; check --input")
    return UserError(f"SentencePiece cannot train --vocab_size={vocab_size} on this corpus: {error}")


def vocabulary_listing(model: bytes) -> str:
    """The text of a .vocab file: a piece and its score a line, in the order of the ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.get_piece_size())
    return "".join(f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in ids)


def _lines(patterns: str, text_field: str, limit: int) -> Iterator[str]:
    documents = corpus.read_documents(patterns, text_field)
    lines = (line for document in documents for line in document)
    return tqdm(itertools.islice(lines, limit), desc="reading", unit=" lines", file=sys.stderr)


def main() -> None:
    prefix = Path(_OUTPUT_PREFIX.value)
    files.make_output_dir(prefix.parent)
    lines = _lines(_INPUT.value, _TEXT_FIELD.value, _MAX_LINES.value)
    model = train_tokenizer(lines, _VOCAB_SIZE.value, _LOWER_CASE.value, _CHARACTER_COVERAGE.value)
    with files.replacing(f"{prefix}.vocab") as temporary:
        temporary.write_text(vocabulary_listing(model), encoding="utf-8")
    with files.replacing(f"{prefix}.model") as temporary:
        temporary.write_bytes(model)
    digest = files.sha256(f"{prefix}.model")
    print(f"wrote {prefix}.model and {prefix}.vocab: {_VOCAB_SIZE.value:,} pieces, sha256 {digest}")


def run() -> None:
    flags.mark_flags_as_required(["input", "output_prefix"])
    run_main(main)


if __name__ == "__main__":
    run()
