"""The schema of a training example, and the steps from tokenized documents to encoded records.

Static records, masked when built, have the features of google-research/albert (create_pretraining_data.py:165-177):
input_ids (masked), input_mask, segment_ids, token_boundary int64 [max_seq_length]; masked_lm_positions, masked_lm_ids
int64 and masked_lm_weights float32 [max_predictions_per_seq]; next_sentence_labels int64 [1]. Dynamic records, masked
when read, have unpadded, unmasked input_ids, segment_ids, token_boundary; and next_sentence_labels. token_boundary is 1
at the start of a word and at [CLS] and [SEP].

A batch is encoded as TFRecords of tf.train.Example at once and without TensorFlow. Formats:
protobuf.dev/programming-guides/encoding; TensorFlow core/lib/io/record_writer.h.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.building.settings import BuildSettings
from tfrecords.examples import segments
from tfrecords.examples.masking import MaskingVocabulary, mask_examples
from tfrecords.examples.randomness import derive


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


_INT64_LIST, _FLOAT_LIST = 0x1A, 0x12  # protobuf tags of tf.train.Feature's fields 3 and 2
_HEADER, _FOOTER = 12, 4


def encode_records(features: Mapping[str, np.ndarray], counts: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Returns TFRecord bytes with one tf.train.Example for each row.

    features: arrays [examples, width] by name; float32 becomes a FloatList, whole numbers (from 0 to 2**31 - 1) and
    bools an Int64List. counts: by name, how many values of each row to write, [examples]; a name without counts writes
    all.
    """
    counts = {name: np.full(len(array), array.shape[1]) for name, array in features.items()} | (counts or {})
    names = sorted(features)
    is_float = np.array([features[name].dtype == np.float32 for name in names])
    values = np.concatenate(
        [features[name].view(np.int32) if floats else features[name].astype(np.int32, copy=False)
         for name, floats in zip(names, is_float)], axis=1)  # fmt: skip
    columns = np.cumsum([0] + [features[name].shape[1] for name in names])
    encoded = [name.encode() for name in names]
    return _encode(
        values,
        np.stack([counts[name] for name in names], axis=1).astype(np.int64),
        columns,
        np.where(is_float, _FLOAT_LIST, _INT64_LIST).astype(np.uint8),
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([0] + [len(name) for name in encoded]),
        _CRC_TABLES,
    ).tobytes()


# uint32 [8, 256]: CRC-32C (Castagnoli) of each byte value followed by 0 to 7 zero bytes.
def _crc_tables() -> np.ndarray:
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, np.uint32(0x82F63B78), np.uint32(0))
    for zeros in range(1, 8):
        tables[zeros] = (tables[zeros - 1] >> 8) ^ tables[0][tables[zeros - 1] & 0xFF]
    return tables


_CRC_TABLES = _crc_tables()


@compiled
def _encode(values, counts, columns, tags, name_bytes, name_splits, crc_tables):
    features = len(tags)
    # 10 bytes hold any varint; 64 a feature hold its tags, lengths and more.
    fixed = _HEADER + _FOOTER + 16 + len(name_bytes) + 64 * features
    out = np.empty(1 << 16, np.uint8)
    end = 0
    payloads = np.empty(features, np.int64)
    for row in range(len(values)):
        body = 0
        for f in range(features):
            payloads[f] = _payload_size(values[row], columns[f], counts[row, f], tags[f])
            entry = _entry_size(name_splits[f + 1] - name_splits[f], payloads[f])
            body += 1 + _varint_size(entry) + entry
        if end + body + fixed > len(out):
            out = np.concatenate((out, np.empty(len(out) + body + fixed, np.uint8)))
        start = end + _HEADER
        at = _put_tag(out, start, 0x0A, body)
        for f in range(features):
            name = name_bytes[name_splits[f] : name_splits[f + 1]]
            at = _put_feature(out, at, name, values[row], columns[f], counts[row, f], tags[f], payloads[f])
        _put_fixed(out, end, np.uint64(at - start), 8)
        _put_fixed(out, end + 8, np.uint64(_masked_crc(out, end, end + 8, crc_tables)), 4)
        _put_fixed(out, at, np.uint64(_masked_crc(out, start, at, crc_tables)), 4)
        end = at + _FOOTER
    return out[:end]


@compiled
def _varint_size(value):
    size = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


@compiled
def _payload_size(row, column, count, tag):
    if tag == _FLOAT_LIST:
        return 4 * count
    size = 0
    for i in range(column, column + count):
        size += _varint_size(row[i])
    return size


@compiled
def _nested(size):
    return 1 + _varint_size(size) + size


@compiled
def _entry_size(name_length, payload):
    return _nested(name_length) + _nested(_nested(_list_size(payload)))


@compiled
def _list_size(payload):
    return _nested(payload) if payload else 0


@compiled
def _put_varint(out, at, value):
    while value >= 128:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@compiled
def _put_tag(out, at, tag, size):
    out[at] = tag
    return _put_varint(out, at + 1, size)


@compiled
def _put_fixed(out, at, value, size):
    for i in range(size):
        out[at + i] = (value >> np.uint64(8 * i)) & np.uint64(0xFF)
    return at + size


@compiled
def _put_feature(out, at, name, row, column, count, tag, payload):
    at = _put_tag(out, at, 0x0A, _entry_size(len(name), payload))
    at = _put_tag(out, at, 0x0A, len(name))
    out[at : at + len(name)] = name
    at = _put_tag(out, at + len(name), 0x12, _nested(_list_size(payload)))
    at = _put_tag(out, at, tag, _list_size(payload))
    if payload:
        at = _put_tag(out, at, 0x0A, payload)
    for i in range(column, column + count):
        if tag == _FLOAT_LIST:
            at = _put_fixed(out, at, np.uint64(np.uint32(row[i])), 4)
        else:
            at = _put_varint(out, at, row[i])
    return at


@compiled
def _masked_crc(data, start, end, tables):
    crc = np.uint32(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        low = crc ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        crc = np.uint32(
            tables[7, low & np.uint32(0xFF)]
            ^ tables[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ tables[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ tables[4, low >> np.uint32(24)]
            ^ tables[3, data[at + 4]]
            ^ tables[2, data[at + 5]]
            ^ tables[1, data[at + 6]]
            ^ tables[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = np.uint32((crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)])
        at += 1
    crc = ~crc
    return np.uint32((crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8))
