"""The schema of a training example, and the road from a batch of tokenized documents to encoded records.

Static records hold masked ids, with the features of google-research/albert (create_pretraining_data.py:165-177), all of
fixed length: input_ids, input_mask, segment_ids, token_boundary int64 [max_seq_length]; masked_lm_positions,
masked_lm_ids int64 and masked_lm_weights float32 [max_predictions_per_seq]; next_sentence_labels int64 [1].
Dynamic records hold what the reader needs to mask anew: input_ids, segment_ids, token_boundary, unpadded, and
next_sentence_labels. token_boundary is 1 where a word begins, and at [CLS] and [SEP].
"""

import math
from dataclasses import dataclass

import numpy as np

from tfrecords import pairs, segments
from tfrecords.base.compiled import compiled
from tfrecords.base.errors import UserError
from tfrecords.masking import MaskingRule, MaskingVocabulary, mask_examples
from tfrecords.randomness import derive
from tfrecords.records import encode_records

MASKINGS = ("static", "dynamic")


@dataclass(frozen=True)
class ExampleConfig:
    """Everything that decides what the examples of a corpus are, apart from its tokenizer."""

    seed: int = 12345
    max_seq_length: int = 512
    # None: the share of the longest example, as the recipes of google-research have it (512 tokens x 0.15: 77).
    max_predictions_per_seq: int | None = None
    masking: str = "static"
    masked_lm_prob: float = 0.15
    max_ngram: int = 3
    whole_words: bool = True
    pair_task: str = "sop"
    input_format: str = "segment-pair"
    # None: 0.1 for pairs as in the official code, 0 for single segments as in RoBERTa.
    short_seq_prob: float | None = None
    short_seq_rule: str = "example"
    dupe_factor: int = 1

    def __post_init__(self):
        if self.short_seq_prob is None:
            object.__setattr__(self, "short_seq_prob", 0.1 if self.is_pair else 0.0)
        if self.max_predictions_per_seq is None:
            # 0.1 x 30 is 3.0000000000000004.
            most = math.ceil(round(self.masked_lm_prob * self.max_seq_length, 6))
            object.__setattr__(self, "max_predictions_per_seq", min(max(most, 1), self.max_seq_length))
        _check_choice("masking", self.masking, MASKINGS)
        _check_choice("pair_task", self.pair_task, pairs.PAIR_TASKS)
        _check_choice("input_format", self.input_format, segments.INPUT_FORMATS)
        _check_choice("short_seq_rule", self.short_seq_rule, segments.SHORT_RULES)
        for name, low, high in (
            ("seed", -(1 << 63), (1 << 63) - 1),
            ("max_seq_length", 8, 1 << 20),
            ("max_predictions_per_seq", 1, self.max_seq_length),
            ("masked_lm_prob", 0.0, 1.0),
            ("max_ngram", 1, 64),
            ("short_seq_prob", 0.0, 1.0),
            ("dupe_factor", 1, 1 << 20),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UserError(f"{name} is {value}; it must lie between {low} and {high}")
        if not self.is_pair and self.pair_task != "none":
            raise UserError(f"input_format={self.input_format} has one segment; set pair_task=none with it")

    @property
    def is_pair(self) -> bool:
        return self.input_format in ("segment-pair", "sentence-pair")

    @property
    def max_tokens(self) -> int:
        """Tokens of text in an example: all but [CLS] and one [SEP] a segment."""
        return self.max_seq_length - (3 if self.is_pair else 2)

    @property
    def masking_rule(self) -> MaskingRule:
        return MaskingRule(self.max_predictions_per_seq, self.masked_lm_prob, self.max_ngram, self.whole_words)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{name} is '{value}'; choose one of {', '.join(choices)}")


@dataclass(frozen=True)
class Plan:
    """Which tokens make each example of a batch of documents; nothing is copied yet.

    ids: int32, the tokens. spans: int64 [examples, 4], start and end of A and of B in ids. labels: int32 [examples].
    keys: uint64 [examples], each example's stream of random numbers.
    """

    ids: np.ndarray
    spans: np.ndarray
    labels: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.spans)


@dataclass(frozen=True)
class Examples:
    """Examples before masking. input_ids: int32 [examples, max_seq_length], zeros behind `lengths`.

    second_starts: position of the first token of segment 1 (the length where there is none). labels, keys: as in Plan.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    second_starts: np.ndarray
    labels: np.ndarray
    keys: np.ndarray


def plan_examples(
    config: ExampleConfig,
    separator: int,
    ids: np.ndarray,
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
    document_numbers: np.ndarray,
    copy: int,
) -> Plan:
    """Segments a batch of documents (see `segments`). separator: the id of [SEP].

    document_numbers: int64 [documents], the documents' places in the corpus; with `copy`, the number of the pass over
    it, and the seed they decide every random choice.
    """
    keys = derive(config.seed, copy, document_numbers)
    joined = config.input_format == "full-sentences"
    sentence_splits, document_splits = segments.cut_long_sentences(
        sentence_splits, document_splits, config.max_tokens - joined
    )
    if joined:
        ids, sentence_splits, document_splits = segments.join_documents(
            ids, sentence_splits, document_splits, separator
        )
    by_document = config.short_seq_rule == "document"
    arguments = sentence_splits, document_splits, keys, config.max_tokens, config.short_seq_prob, by_document
    if config.is_pair:
        task = pairs.PAIR_TASKS.index(config.pair_task)
        return Plan(ids, *pairs.pair_spans(*arguments, task, config.input_format == "sentence-pair"))
    return Plan(ids, *segments.single_spans(*arguments))


def lay_out(config: ExampleConfig, vocabulary: MaskingVocabulary, plan: Plan, rows: np.ndarray) -> Examples:
    """The examples of a plan at these indices, in this order."""
    layout = _lay_out(plan.ids, plan.spans[rows], config.max_seq_length, vocabulary.cls_id, vocabulary.sep_id)
    return Examples(*layout, plan.labels[rows], plan.keys[rows])


@compiled
def _lay_out(ids, spans, sequence, cls_id, sep_id):
    """[CLS] A [SEP] B [SEP]. A separator that ends a span already is not doubled."""
    examples = len(spans)
    input_ids = np.zeros((examples, sequence), np.int32)
    lengths = np.zeros(examples, np.int32)
    second_starts = np.zeros(examples, np.int32)
    for row in range(examples):
        a_start, a_end, b_start, b_end = spans[row]
        if a_end > a_start and ids[a_end - 1] == sep_id:
            a_end -= 1
        out = input_ids[row]
        out[0] = cls_id
        end = 1 + a_end - a_start
        out[1:end] = ids[a_start:a_end]
        out[end] = sep_id
        second_starts[row] = end = end + 1
        if b_end > b_start:
            out[end : end + b_end - b_start] = ids[b_start:b_end]
            end += b_end - b_start
            out[end] = sep_id
            end += 1
        lengths[row] = end
    return input_ids, lengths, second_starts


def encode_examples(config: ExampleConfig, vocabulary: MaskingVocabulary, batch: Examples) -> bytes:
    """TFRecord bytes of a batch, masked if the masking is static."""
    examples, sequence = batch.input_ids.shape
    columns = np.arange(sequence)
    present = columns < batch.lengths[:, None]
    special = (batch.input_ids == vocabulary.cls_id) | (batch.input_ids == vocabulary.sep_id)
    features = {
        "segment_ids": present & (columns >= batch.second_starts[:, None]),
        "token_boundary": present & (special | vocabulary.word_starts[batch.input_ids]),
        "next_sentence_labels": batch.labels[:, None],
    }
    if config.masking == "dynamic":
        features["input_ids"] = batch.input_ids
        counts = dict.fromkeys(features, batch.lengths) | {"next_sentence_labels": np.ones(examples, np.int32)}
        return encode_records(features, counts)
    masked, positions, originals, predicted = mask_examples(
        batch.input_ids, batch.lengths, batch.keys, config.masking_rule, vocabulary
    )
    features |= {
        "input_ids": masked,
        "input_mask": present,
        "masked_lm_positions": positions,
        "masked_lm_ids": originals,
        "masked_lm_weights": (np.arange(positions.shape[1]) < predicted[:, None]).astype(np.float32),
    }
    return encode_records(features, {name: np.full(examples, array.shape[1]) for name, array in features.items()})
