"""Settings that several commands share: which text they read, and how it is tokenized."""

from dataclasses import dataclass

from tfrecords.base.settings import CheckedSettings, setting


@dataclass(frozen=True, kw_only=True)
class TextField(CheckedSettings):
    """Where a JSON line has its text."""

    text_field: str = setting("text", help="Field of a JSON line that holds the text.")


@dataclass(frozen=True, kw_only=True)
class TextSettings(TextField):
    """A corpus, and what becomes of its letters."""

    input: str = setting("", help="Comma-separated globs of text or JSON lines files, each also .gz.")
    lower_case: bool | None = setting(
        None,
        help="Lower-case the text, as the vocabulary was made; unset: as the tokenizer or its pieces say, and for a "
        "new vocabulary yes.",
    )
    keep_accents: bool | None = setting(
        None,
        help="Keep accents (German schön is not schon); unset: as the tokenizer says, or else strip them, as ALBERT"
        " and BERT do.",
    )
