"""Training a SentencePiece vocabulary as ALBERT's was."""

import io
import re
from collections.abc import Iterable

import sentencepiece

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.normalization import albert_normalizer, with_albert_normalization

# google-research/albert's own: ids 0 to 4, and pieces that always stand alone (README, "training a vocabulary").
CONTROL_PIECES = ["[CLS]", "[SEP]", "[MASK]"]
USER_PIECES = ["(", ")", '"', "-", ".", "–", "£", "€"]  # noqa: RUF001
# SentencePiece leaves out lines of more bytes. Allowing longer ones would take memory for them as wholes.
_MOST_BYTES = 4192
# 1048 characters have at most that. Cut at white space, inside a word only where it alone is longer.
_PARTS = re.compile(r"\S.{0,1047}(?!\S)|\S{1,1048}", re.DOTALL)


def train_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    lower_case: bool = True,
    character_coverage: float = 0.99995,
    hard_vocab_limit: bool = True,
    keep_accents: bool = False,
) -> bytes:
    """Trains a unigram model on the lines and returns it serialised, ALBERT's normalisation inside.

    The same lines and settings give the same bytes. Raises UserError when there is too little text for `vocab_size`
    pieces (unless `hard_vocab_limit` is off: then there are as many as the text gives), or too many characters.
    """
    normalizer = albert_normalizer(lower_case, keep_accents)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(part for line in lines for part in _cut(normalizer.normalize(line))),
            model_writer=model,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            hard_vocab_limit=hard_vocab_limit,
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
        raise _impossible_size(error, vocab_size) from error
    return with_albert_normalization(model.getvalue(), lower_case, keep_accents)


def _cut(line: str) -> list[str]:
    return [line] if len(line.encode()) <= _MOST_BYTES else _PARTS.findall(line)


def _impossible_size(error: RuntimeError, vocab_size: int) -> UserError:
    limit = re.search(r"value <= (\d+)", str(error))
    if limit:
        return UserError(f"the corpus is too small for --vocab_size={vocab_size}; set it to {limit[1]} or less")
    characters = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
    if characters:
        return UserError(
            f"--vocab_size={vocab_size} has no room for the corpus's {characters[1]} characters and special pieces; "
            "raise it, or lower --character_coverage"
        )
    if "sentences_.empty()" in str(error):
        return UserError("the corpus holds no text to train on; check --input")
    return UserError(f"SentencePiece cannot train --vocab_size={vocab_size} on this corpus: {error}")


def vocabulary_listing(model: bytes) -> str:
    """The text of a .vocab file: a piece and its score a line, in the order of the ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.get_piece_size())
    return "".join(f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in ids)
