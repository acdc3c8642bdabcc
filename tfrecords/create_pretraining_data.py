"""Text to TFRecords for pre-training.

python -m tfrecords.create_pretraining_data --input='corpus/*.txt' --output_dir=data --tokenizer=spm.model --seed=1
"""

import os

from absl import flags

from tfrecords import examples, pairs, segments
from tfrecords.base.script import run_main, say_next
from tfrecords.builder import build
from tfrecords.corpus import find_files
from tfrecords.runners import RUNNERS
from tfrecords.tokenizers.base import load_tokenizer
from tfrecords.tokenizers.unknown_share import check_unknown_share, unknown_share
from tfrecords.writer import BuildConfig

_INPUT = flags.DEFINE_string("input", None, "Comma-separated globs of text or JSON lines files, each also .gz.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder for the records, the manifest and the tokenizer.")
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "SentencePiece .model, WordPiece vocab .txt, or saved folder.")
_LOWER_CASE = flags.DEFINE_bool("lower_case", True, "Lower-case the text, as the vocabulary was made.")
_KEEP_ACCENTS = flags.DEFINE_bool(
    "keep_accents", None, "Keep accents; unset: as the tokenizer says, or else strip them, as ALBERT and BERT do."
)
_MAX_UNKNOWN_SHARE = flags.DEFINE_float(
    "max_unknown_share", 0.2, "Of the text's tokens, how many the vocabulary may have no piece for.", 0.0, 1.0
)
_TEXT_FIELD = flags.DEFINE_string("text_field", "text", "Field of a JSON line that holds the text.")
_SPLIT_SENTENCES = flags.DEFINE_bool("split_sentences", False, "A line is a paragraph: split it into sentences.")
_SEED = flags.DEFINE_integer("seed", 12345, "Decides every random choice.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "Tokens in an example, [CLS] and [SEP] included.")
_MAX_PREDICTIONS = flags.DEFINE_integer(
    "max_predictions_per_seq",
    None,
    "Most tokens to predict in an example; --masked_lm_prob x --max_seq_length, rounded up, if unset.",
)
_MASKED_LM_PROB = flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the tokens to predict, up to the most.")
_NGRAM = flags.DEFINE_integer("ngram", 3, "Longest span of words to mask; 1 masks single words.")
_WHOLE_WORDS = flags.DEFINE_bool("whole_words", True, "Mask whole words; --nowhole_words masks single pieces.")
_MASKING = flags.DEFINE_enum(
    "masking", "static", examples.MASKINGS, "static: masked here; dynamic: the reader masks anew every epoch."
)
_PAIR_TASK = flags.DEFINE_enum("pair_task", "sop", pairs.PAIR_TASKS, "What the two segments of an example are.")
_INPUT_FORMAT = flags.DEFINE_enum("input_format", "segment-pair", segments.INPUT_FORMATS, "What fills an example.")
_SHORT_SEQ_PROB = flags.DEFINE_float(
    "short_seq_prob",
    None,
    "Share of the examples that are cut shorter; 0.1 for pairs and 0 for single segments if unset.",
)
_SHORT_SEQ_RULE = flags.DEFINE_enum(
    "short_seq_rule",
    "example",
    segments.SHORT_RULES,
    "Whether that is drawn for each example, or as in google-research/albert for each document.",
)
_DUPE_FACTOR = flags.DEFINE_integer("dupe_factor", 1, "Passes over the corpus, each with other cuts, pairs and masks.")
_HELD_OUT_FRACTION = flags.DEFINE_float("held_out_fraction", 0.1, "Share of the documents kept for evaluation.")
_GZIP = flags.DEFINE_bool("gzip", False, "Compress the records.")
_CHUNK_MEGABYTES = flags.DEFINE_float(
    "chunk_megabytes", 0.0, "Text a file of records is made from, in MB; 0: 8, and up to 160 for corpora above 8 GB."
)
_MAX_BAD_LINES = flags.DEFINE_integer(
    "max_bad_lines", 0, "JSON lines that may be left out because they hold no text.", 0
)
_WORKERS = flags.DEFINE_integer("workers", None, "Processes; the processors of this machine if not given.", 1)
_RUNNER = flags.DEFINE_enum(
    "runner", "local", tuple(RUNNERS), "local: processes here; ray: the cluster of RAY_ADDRESS."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace records in --output_dir that were built otherwise.")


def main() -> None:
    config = BuildConfig(
        examples=examples.ExampleConfig(
            seed=_SEED.value,
            max_seq_length=_MAX_SEQ_LENGTH.value,
            max_predictions_per_seq=_MAX_PREDICTIONS.value,
            masking=_MASKING.value,
            masked_lm_prob=_MASKED_LM_PROB.value,
            max_ngram=_NGRAM.value,
            whole_words=_WHOLE_WORDS.value,
            pair_task=_PAIR_TASK.value,
            input_format=_INPUT_FORMAT.value,
            short_seq_prob=_SHORT_SEQ_PROB.value,
            short_seq_rule=_SHORT_SEQ_RULE.value,
            dupe_factor=_DUPE_FACTOR.value,
        ),
        held_out_fraction=_HELD_OUT_FRACTION.value,
        text_field=_TEXT_FIELD.value,
        split_sentences=_SPLIT_SENTENCES.value,
        gzip=_GZIP.value,
        chunk_megabytes=_CHUNK_MEGABYTES.value,
    )
    tokenizer = load_tokenizer(_TOKENIZER.value, _LOWER_CASE.value, _KEEP_ACCENTS.value)
    share = unknown_share(find_files(_INPUT.value), tokenizer, _TEXT_FIELD.value)
    check_unknown_share(share, _MAX_UNKNOWN_SHARE.value, tokenizer)
    print(f"{share:.1%} of the tokens are unknown to the vocabulary, by a sample")
    workers = _WORKERS.value or len(os.sched_getaffinity(0))
    manifest = build(
        _INPUT.value,
        _OUTPUT_DIR.value,
        tokenizer,
        config,
        workers,
        _OVERWRITE.value,
        _RUNNER.value,
        _MAX_BAD_LINES.value,
    )
    folder = _OUTPUT_DIR.value
    held_out = f" --eval_data={folder}" if manifest["splits"]["eval"]["examples"] else ""
    say_next(
        f"python -m albert_tf.run_pretraining --train_data={folder}{held_out} --config=albert_base_v2 --output_dir=run"
    )


def run() -> None:
    flags.mark_flags_as_required(["input", "output_dir", "tokenizer"])
    run_main(main)


if __name__ == "__main__":
    run()
