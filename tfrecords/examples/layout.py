"""The schema of a training example, and the steps from tokenized documents to encoded records.

Static records, masked when built, have the features of google-research/albert (create_pretraining_data.py:165-177):
input_ids (masked), input_mask, segment_ids, token_boundary int64 [max_seq_length]; masked_lm_positions, masked_lm_ids
int64 and masked_lm_weights float32 [max_predictions_per_seq]; next_sentence_labels int64 [1]. Dynamic records, masked
when read, have unpadded, unmasked input_ids, segment_ids, token_boundary; and next_sentence_labels. token_boundary is 1
at the start of a word and at [CLS] and [SEP].
"""

from dataclasses import dataclass

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.building.settings import BuildSettings
from tfrecords.examples import segments
from tfrecords.examples.masking import MaskingVocabulary, mask_examples
from tfrecords.examples.randomness import derive
from tfrecords.examples.records import encode_records


@dataclass(frozen=True)
class Plan:
    """The positions of each example's tokens in a batch of documents.

    spans: int64 [examples, 4], start and end of segments A and B in ids. keys: uint64 [examples], which select random
    streams.
    """

    ids: np.ndarray
    spans: np.ndarray
    labels: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True)
class Examples:
    """Examples before masking: input_ids, int32 [examples, max_seq_length], with padding after `lengths` tokens.

    second_starts: position of segment B; without one, the example's length.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    second_starts: np.ndarray
    labels: np.ndarray
    keys: np.ndarray


def plan_examples(
    settings: BuildSettings,
    vocabulary: MaskingVocabulary,
    ids: np.ndarray,
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
    document_numbers: np.ndarray,
    copy: int,
) -> Plan:
    """Cuts a batch of documents (see `segments`) into examples.

    document_numbers, int64 [documents], `copy` (the pass over the corpus) and the seed determine all random choices.
    """
    keys = derive(settings.seed, copy, document_numbers)
    joined = settings.input_format == "full-sentences"
    # `max_tokens` counts one [SEP] between two texts.
    max_tokens = settings.max_tokens - settings.is_pair * (vocabulary.separators_between - 1)
    sentence_splits, document_splits = segments.cut_long_sentences(
        sentence_splits, document_splits, max_tokens - joined
    )
    if joined:
        ids, sentence_splits, document_splits = segments.join_documents(
            ids, sentence_splits, document_splits, vocabulary.sep_id
        )
    arguments = sentence_splits, document_splits, keys, max_tokens, settings.short_seq_prob
    if settings.is_pair:
        task = segments.PAIR_TASKS.index(settings.pair_task)
        return Plan(ids, *segments.pair_spans(*arguments, task, settings.input_format == "sentence-pair"))
    return Plan(ids, *segments.single_spans(*arguments))


def lay_out(settings: BuildSettings, vocabulary: MaskingVocabulary, plan: Plan, rows: np.ndarray) -> Examples:
    """Builds the examples of a plan that have the indices `rows`."""
    special = vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id
    layout = _lay_out(plan.ids, plan.spans[rows], settings.max_seq_length, special, vocabulary.separators_between)
    return Examples(*layout, plan.labels[rows], plan.keys[rows])  # type: ignore[call-arg]


@compiled
def _lay_out(ids, spans, sequence, special, between):
    cls_id, sep_id, pad_id = special
    examples = len(spans)
    input_ids = np.full((examples, sequence), pad_id, np.int32)
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
        end += 1
        if b_end > b_start:
            out[end : end + between - 1] = sep_id
            end += between - 1
        second_starts[row] = end
        if b_end > b_start:
            out[end : end + b_end - b_start] = ids[b_start:b_end]
            end += b_end - b_start
            out[end] = sep_id
            end += 1
        lengths[row] = end
    return input_ids, lengths, second_starts


def encode_examples(settings: BuildSettings, vocabulary: MaskingVocabulary, batch: Examples) -> bytes:
    """Encodes examples as TFRecord bytes; masks them first if masking is static."""
    columns = np.arange(batch.input_ids.shape[1])
    present = columns < batch.lengths[:, None]
    special = (batch.input_ids == vocabulary.cls_id) | (batch.input_ids == vocabulary.sep_id)
    features = {
        "segment_ids": present & (columns >= batch.second_starts[:, None]) & bool(vocabulary.second_segment_id),
        "token_boundary": present & (special | vocabulary.words_begin(batch.input_ids)),
        "next_sentence_labels": batch.labels[:, None],
    }
    if settings.masking == "dynamic":
        features["input_ids"] = batch.input_ids
        of_tokens = dict.fromkeys(("input_ids", "segment_ids", "token_boundary"), batch.lengths)
        return encode_records(features, of_tokens)
    masked, positions, originals, predicted = mask_examples(
        batch.input_ids, batch.lengths, batch.keys, settings.masking_rule, vocabulary
    )
    features |= {
        "input_ids": masked,
        "input_mask": present,
        "masked_lm_positions": positions,
        "masked_lm_ids": originals,
        "masked_lm_weights": (np.arange(positions.shape[1]) < predicted[:, None]).astype(np.float32),
    }
    return encode_records(features)
