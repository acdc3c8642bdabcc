"""Writes a tokenizer as a file that the light runtime reads."""

from pathlib import Path

from serving.lite.description import TokenizerRules
from tfrecords.tokenizers.base import Tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> TokenizerRules:
    """Writes the tokenizer's own file; returns how texts become ids."""
    (folder / tokenizer.file_name).write_bytes(tokenizer.vocabulary)
    names = ("kind", "lower_case", "keep_accents", "lowers_first", "separators_between", "second_segment_id")
    names += ("cls_id", "sep_id", "mask_id", "pad_id", "unk_id", "word_prefix", "vocab_size")
    own = {name: getattr(tokenizer, name) for name in names}
    return TokenizerRules(
        file=tokenizer.file_name,
        table_rows=tokenizer.table_rows or tokenizer.vocab_size,
        special_in_text=getattr(tokenizer, "special_in_text", False),
        added=tuple(tokenizer.cut_tokens),
        **own,
    )
