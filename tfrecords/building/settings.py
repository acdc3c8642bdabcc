"""The settings of a corpus, and those that, together with corpus and tokenizer, determine the bytes of the records."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from tfrecords.base.errors import UserError, refuse
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.examples import segments
from tfrecords.examples.masking import MaskingRule

OBJECTIVES = ("masked", "permutation")
MASKINGS = ("static", "dynamic")
# Only in manifests of permutation records.
_OF_PERMUTATION = ("objective", "reuse_length", "streams")
# A masked span of n tokens has a context of n times as many in permutation records.
SPAN_CONTEXT = 6
# The minimum: one token each of A and B, two [SEP] and [CLS].
_SHORTEST_PAIR = 5
# Default megabytes of text in a shard: more if there would be over a thousand shards.
_SMALLEST_CHUNK, _LARGEST_CHUNK = 8.0, 160.0
_MANY_SHARDS = 1000


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


@dataclass(frozen=True, kw_only=True)
class BuildSettings(TextField):
    """The settings of a build, named as in the records' manifest.

    >>> settings = BuildSettings(max_seq_length=128, masking="dynamic")
    >>> settings.max_predictions_per_seq, settings.short_seq_prob
    (20, 0.1)
    >>> BuildSettings(max_seq_length=4)
    Traceback (most recent call last):
    tfrecords.base.errors.UserError: --max_seq_length=4 must be from 8 to 1048576
    """

    seed: int = setting(12345, help="Seed of all random choices.", at_least=-(1 << 63), at_most=(1 << 63) - 1)
    max_seq_length: int = setting(
        512, help="Tokens in an example, [CLS] and [SEP] included.", at_least=8, at_most=1 << 20
    )
    objective: str = setting(
        "masked",
        help="Objective that the records are for; permutation: rows in the order of the text.",
        choices=OBJECTIVES,
    )
    # As in the published recipes (512 tokens x 0.15: 77, and for permutations 512 / 6: 85).
    max_predictions_per_seq: int | None = setting(
        None,
        help="Largest number of tokens to predict in an example; --masked_lm_prob x --max_seq_length, rounded "
        "up, if unset. In permutation records it is the exact number; --max_seq_length / 6, rounded down, if unset.",
        at_least=1,
        at_most="max_seq_length",
    )
    masking: str = setting(
        "static", help="static: mask when building; dynamic: the reader draws new masks every epoch.", choices=MASKINGS
    )
    masked_lm_prob: float = setting(
        0.15, help="Share of the tokens to predict, up to --max_predictions_per_seq.", at_least=0.0, at_most=1.0
    )
    max_ngram: int | None = setting(
        None,
        help="Longest span of words to mask, 1 for single words; unset: 3, and 5 in permutation records.",
        at_least=1,
        at_most=64,
        flag="ngram",
    )
    whole_words: bool | None = setting(
        None,
        help="Mask whole words; --nowhole_words masks single pieces. Permutation records mask spans of pieces: a span "
        "begins with a word and has a fixed number of pieces, as in the published code.",
    )
    pair_task: str | None = setting(
        None,
        help="Task on the two segments of an example: sop (which comes first), sop_legacy (sop as built by"
        " google-research/albert) or nsp (whether the second follows the first); unset: sop, and none in permutation"
        " records.",
        choices=segments.PAIR_TASKS,
    )
    input_format: str = setting(
        "segment-pair",
        help="What fills an example; segment-pair: two segments of several sentences; sentence-pair: two sentences;"
        " doc-sentences: sentences of one document; full-sentences: sentences across documents.",
        choices=segments.INPUT_FORMATS,
    )
    # 0.1 as in the official code, 0 as in RoBERTa.
    short_seq_prob: float | None = setting(
        None,
        help="Share of the examples that are cut shorter; 0.1 for pairs and 0 for single segments if unset.",
        at_least=0.0,
        at_most=1.0,
    )
    reuse_length: int | None = setting(
        None,
        help="Permutation: tokens from the start of a row after which the next row begins; they are the memory "
        "of the next row; half of --max_seq_length if unset, 0 for none.",
        at_least=0,
    )
    streams: int = setting(
        2,
        help="Permutation: number of streams of text that the rows of a file are taken from in turn; half of them run "
        "backwards.",
        at_least=1,
        at_most=1 << 16,
    )
    dupe_factor: int = setting(
        1, help="Passes over the corpus, each with other cuts, pairs and masks.", at_least=1, at_most=1 << 20
    )
    held_out_fraction: float = setting(
        0.1, help="Share of the documents that is held out for evaluation.", at_least=0.0, below=1.0
    )
    split_sentences: bool = setting(False, help="Each line is a paragraph; split it into sentences.")
    line_documents: bool = setting(False, help="Each line is a document; in JSON lines, each line of the text.")
    chunk_megabytes: float = setting(
        0.0,
        help="MB of text for each file of records; 0: 8, and up to 160 for corpora above 8 GB.",
        at_least=0.01,
        at_most=1024.0,
        also={0: "for as many as the corpus asks for"},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective == "permutation":
            self._settle_permutation()
        elif given := self.given(_OF_PERMUTATION):
            raise UserError(f"{given} is for --objective=permutation; leave it out")
        self._fill_in("pair_task", "sop")
        self._fill_in("max_ngram", 3)
        self._fill_in("whole_words", True)
        refuse({
            f"--input_format={self.input_format} has one segment; set --pair_task=none with it":
                not self.is_pair and self.pair_task != "none",
            f"--line_documents leaves no two sentences for --pair_task={self.pair_task}; add --split_sentences, or "
            "set --pair_task=none":
                self.line_documents and self.pair_task != "none" and not self.split_sentences,
        })  # fmt: skip
        self._fill_in("short_seq_prob", 0.1 if self.is_pair else 0.0)
        # 0.1 x 30 is 3.0000000000000004.
        self._fill_in("max_predictions_per_seq", max(math.ceil(round(self.masked_lm_prob * self.max_seq_length, 6)), 1))

    def _fill_in(self, name: str, value: object) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _settle_permutation(self) -> None:
        only_one = {"masking": "static", "pair_task": "none", "input_format": "segment-pair", "whole_words": False}
        for name, only in only_one.items():
            self._fill_in(name, only)
            if getattr(self, name) != only:
                raise UserError(f"--{name}={getattr(self, name)} is for --objective=masked; leave it out")
        self._fill_in("max_ngram", 5)
        self._fill_in("reuse_length", self.max_seq_length // 2)
        self._fill_in("max_predictions_per_seq", max(self.max_seq_length // SPAN_CONTEXT, 1))
        refuse({
            f"--reuse_length={self.reuse_length} must be at most {self.max_seq_length - _SHORTEST_PAIR}, so that "
            f"--max_seq_length={self.max_seq_length} has room for two segments":
                self.reuse_length > self.max_seq_length - _SHORTEST_PAIR,
            f"--streams={self.streams} must be even: half of them run backwards":
                self.streams % 2,
        })  # fmt: skip
        lengths = self.reuse_length, self.max_seq_length - self.reuse_length
        for goal, length in zip(self.predictions_of_parts, lengths):
            if goal > length:
                raise UserError(
                    f"--max_predictions_per_seq={self.max_predictions_per_seq} puts {goal} predictions into {length} "
                    f"tokens; lower it, or set another --reuse_length than {self.reuse_length}"
                )

    @property
    def predictions_of_parts(self) -> tuple[int, int]:
        """Returns the number of targets in the reused part of an XLNet row, and in the rest."""
        total = self.max_predictions_per_seq
        first = total - total // 2 if self.reuse_length else 0
        return first, total - first

    def described(self) -> dict[str, Any]:
        """Returns the settings for the manifest, without ineffective ones."""
        values = dataclasses.asdict(self)
        return {
            name: value for name, value in values.items() if self.objective != "masked" or name not in _OF_PERMUTATION
        }

    @property
    def is_pair(self) -> bool:
        return self.input_format in ("segment-pair", "sentence-pair")

    @property
    def max_tokens(self) -> int:
        """Maximum number of text tokens in an example, without [CLS] and each segment's [SEP]."""
        return self.max_seq_length - (3 if self.is_pair else 2)

    @property
    def masking_rule(self) -> MaskingRule:
        return MaskingRule(self.max_predictions_per_seq, self.masked_lm_prob, self.max_ngram, self.whole_words)

    @property
    def chunk_bytes(self) -> int:
        return int(self.chunk_megabytes * 1e6)

    def for_corpus(self, text_bytes: int) -> "BuildSettings":
        """Returns settings with chunk_megabytes (text per shard) for `text_bytes` of text.

        If unset, it is 8, doubled until there are at most a thousand shards, but never above 160.
        """
        if self.chunk_megabytes:
            return self
        times = text_bytes / (_SMALLEST_CHUNK * 1e6 * _MANY_SHARDS)
        chosen = _SMALLEST_CHUNK * 2 ** max(0, math.ceil(math.log2(times))) if times else _SMALLEST_CHUNK
        return dataclasses.replace(self, chunk_megabytes=min(chosen, _LARGEST_CHUNK))

    @classmethod
    def of(cls, settings: "BuildSettings") -> "BuildSettings":
        return cls(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)})
