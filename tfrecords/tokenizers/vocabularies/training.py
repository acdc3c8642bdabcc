"""Trains a vocabulary: SentencePiece as in ALBERT, or byte-level BPE as in RoBERTa."""

import io
import json
import re
from collections.abc import Iterable, Iterator

import sentencepiece
import tokenizers

from tfrecords.base.errors import UserError, refuse
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.bytes.byte_bpe_file import ROLES, ByteBPERules, as_tokenizer_json, byte_characters
from tfrecords.tokenizers.normalization import albert_normalizer, with_albert_normalization

# google-research/albert's own: ids 0 to 4, and pieces that always stand alone (README, "training a vocabulary").
CONTROL_PIECES = ["[CLS]", "[SEP]", "[MASK]"]
USER_PIECES = ["(", ")", '"', "-", ".", "–", "£", "€"]  # noqa: RUF001
# In the order of the ids, as in HuggingFace's recipes for a RoBERTa of one's own.
BPE_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# A pair must occur at least so often to be a piece.
_LEAST_FREQUENCY = 2
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
    """Trains a SentencePiece unigram model with ALBERT's normalization; returns it serialized.

    Equal arguments give equal bytes. Raises UserError for too many different characters, or for too little text if
    `hard_vocab_limit`.
    """
    normalizer = albert_normalizer(lower_case, keep_accents)
    model = io.BytesIO()
    # SentencePiece makes a RuntimeError of several lines of what `lines` raise.
    raised: list[BaseException] = []

    def parts() -> Iterator[str]:
        try:
            for line in lines:
                yield from _cut(normalizer.normalize(line))
        except BaseException as error:
            raised.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=parts(),
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
            # Fixed, since the number of threads decides the order in which floats are summed.
            num_threads=4,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise (raised[0] if raised else _impossible_size(error, vocab_size)) from error
    return with_albert_normalization(model.getvalue(), lower_case, keep_accents)


def train_bpe(lines: Iterable[str], vocab_size: int, hard_vocab_limit: bool = True) -> bytes:
    """Trains a byte-level BPE; returns its tokenizer.json, equal bytes for equal arguments.

    Ids 0 to 4 are `<s> <pad> </s> <unk> <mask>`, then come the bytes and the merged pieces. Raises UserError if
    `vocab_size` is too small for the bytes, or for too little text if `hard_vocab_limit`.
    """
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = byte_characters()
    least = len(alphabet) + len(BPE_SPECIAL)
    if vocab_size < least:
        raise UserError(
            f"--vocab_size={vocab_size} has no room for the 256 bytes and special pieces; raise it to {least}"
        )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_LEAST_FREQUENCY,
        special_tokens=BPE_SPECIAL,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    size = tokenizer.get_vocab_size()
    refuse({
        "the corpus holds no text to train on; check --input":
            size == least,
        f"the corpus is too small for --vocab_size={vocab_size}; set it to {size} or less":
            size < vocab_size and hard_vocab_limit,
    })  # fmt: skip
    values = json.loads(tokenizer.to_str())["model"]
    added = tuple(AddedToken(name, number, True, lstrip=name == "<mask>") for number, name in enumerate(BPE_SPECIAL))
    merges = [tuple(merge) for merge in values["merges"]]
    roles = {role: names[0] for role, names in ROLES.items()}
    return as_tokenizer_json(ByteBPERules(values["vocab"], merges, added, roles))


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
