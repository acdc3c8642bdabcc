"""Checks that a tokenizer belongs to a model."""

import os
from pathlib import Path

import keras
from absl import logging

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.families import families
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import own_sha256, tokenizer_in
from tfrecords.tokenizers.vocabularies.comparing import SPECIAL, difference, special_difference

# Rows that a published table may have beyond the vocabulary's pieces, to be a multiple of 8, 64 or 128.
_PADDING = 128


def check_rows(model: keras.Model, tokenizer: Tokenizer, where: str | os.PathLike) -> Tokenizer:
    """Checks that the model has an embedding for each token; returns the tokenizer.

    If only added tokens lack an embedding, the returned tokenizer refuses these.

    Raises:
        UserError: other tokens have no embedding.
    """
    rows, pieces = encoder_of(model).config.vocab_size, tokenizer.vocab_size
    if pieces > rows and tokenizer.added_ids.issuperset(range(rows, pieces)):
        if lost := [token.content for token in tokenizer.cut_tokens if token.id >= rows]:
            logging.warning(
                "the tokenizer of '%s' adds %s, for which the model's table has no row; texts that hold it are refused",
                *(where, ", ".join(map(repr, lost[:5]))),
            )
        return tokenizer.with_table_rows(rows)
    if pieces > rows:
        raise UserError(
            f"the tokenizer of '{where}' has {pieces} pieces, the model only {rows}; they do not belong together"
        )
    if rows - pieces >= _PADDING:
        logging.warning(
            "the tokenizer of '%s' has %d pieces, the model's table %d rows: check that they belong together",
            *(where, pieces, rows),
        )
    return tokenizer


def check_own(
    model: keras.Model, tokenizer: Tokenizer, where: str | os.PathLike, folder: Path, *rules: bool | None
) -> None:
    """Raises UserError if a tokenizer differs from the one that the model's `folder` holds or describes."""
    if own_sha256(folder) == tokenizer.sha256:
        return
    try:
        own = tokenizer_in(folder, *rules)
    except UserError:  # More than one, or damaged: the given one replaces it.
        own = None
    refuse_other(where, f"the model in '{folder}'", difference_from_own(model, tokenizer, folder, own))


def refuse_other(where: str | os.PathLike, model: str, found: str) -> None:
    """Raises UserError if `found`, the difference from the model's tokenizer, is not empty."""
    if found:
        raise UserError(
            f"'{where}' is another tokenizer than {model} was trained with ({found}); give the model's own, or, where "
            "the command has this flag, add --other_tokenizer to use this one all the same (Python:"
            " other_tokenizer=True)"
        )


def difference_from_own(model: keras.Model, tokenizer: Tokenizer, folder: Path, own: Tokenizer | None) -> str:
    """Returns a tokenizer's first difference from `own` or, without it, from the model's configuration; "" if equal."""
    if own is not None:
        return difference(tokenizer, own)
    if own_sha256(folder) not in (None, tokenizer.sha256):
        return "its SHA-256 is not the one noted there"
    rows, pieces = encoder_of(model).config.vocab_size, tokenizer.vocab_size
    if rows != pieces and not (rows % 8 == 0 and 0 < rows - pieces < _PADDING):
        return f"{pieces:,} pieces, and the model's table has {rows:,} rows"
    return special_difference(tokenizer, _said_ids(folder, tokenizer.kind))


def _said_ids(folder: Path, kind: str) -> dict[str, int]:
    values = files.read_object(folder / "config.json")
    names = {role: f"{role}_token_id" for role in SPECIAL}
    # Chinese ALBERTs over WordPiece keep the defaults of bos and eos, which are those of SentencePiece models.
    bos_is_cls = any(one.bos_is_cls for one in families() if values.get("model_type") in one.model_types)
    if bos_is_cls and kind != "wordpiece":
        names |= {"cls": "bos_token_id", "sep": "eos_token_id"}
    return {role: values[name] for role, name in names.items() if isinstance(values.get(name), int)}
