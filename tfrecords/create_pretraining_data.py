"""Turns text into training examples: TFRecord files for pre-training.

python -m tfrecords.create_pretraining_data --input='corpus/*.txt' --output_dir=data --tokenizer=spm.model --seed=1
python -m tfrecords.create_pretraining_data --input=corpus.jsonl.gz --text_field=body --output_dir=data \\
    --tokenizer=tokenizer --held_out_fraction=0.01
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from tfrecords.base.script import run_main, say_next
from tfrecords.base.settings import setting
from tfrecords.build_settings import BuildSettings
from tfrecords.builder import build
from tfrecords.corpus import find_files
from tfrecords.permutation import CONFIG
from tfrecords.runners import RUNNERS
from tfrecords.unknown import check_unknown_share, unknown_share


@dataclass(frozen=True, kw_only=True)
class CreateSettings(BuildSettings):
    """The command's flags: what to build, and how."""

    groups: ClassVar[dict[str, str]] = {
        "Data": "held_out_fraction text_field split_sentences line_documents dupe_factor lower_case",
        "Examples": "max_seq_length objective pair_task masking masked_lm_prob ngram input_format",
        "Run": "seed workers runner gzip overwrite",
    }

    input: str = setting(help="Comma-separated globs of text or JSON lines files, each also .gz.")
    output_dir: str = setting(help="Folder for the records, the manifest and the tokenizer.")
    tokenizer: str = setting(help="SentencePiece .model, WordPiece vocab .txt, folder, or a model on the hub.")
    lower_case: bool | None = setting(
        None, help="Lower-case the text, as the vocabulary was made; unset: as the tokenizer says, or else yes."
    )
    keep_accents: bool | None = setting(
        None, help="Keep accents; unset: as the tokenizer says, or else strip them, as ALBERT and BERT do."
    )
    max_unknown_share: float = setting(
        0.2, help="Largest share of the text's tokens that may be unknown to the vocabulary.", at_least=0.0, at_most=1.0
    )
    max_bad_lines: int = setting(0, help="JSON lines without text that may be left out.", at_least=0)
    workers: int | None = setting(
        None, help="Number of processes; left out: one for each processor of this machine.", at_least=1
    )
    runner: str = setting("local", help="local: processes here; ray: the cluster of RAY_ADDRESS.", choices=RUNNERS)
    overwrite: bool = setting(False, help="Replace records of other settings or another corpus in --output_dir.")


def main(settings: CreateSettings) -> None:
    """Builds the records."""
    # Not at the top: tokenizers bring libraries that --help and wrong flags have no need of.
    from tfrecords.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(settings.tokenizer, settings.lower_case, settings.keep_accents)
    share = unknown_share(find_files(settings.input), tokenizer, settings.text_field)
    check_unknown_share(share, settings.max_unknown_share, tokenizer)
    print(f"{share:.1%} of the tokens are unknown to the vocabulary, by a sample")
    manifest = build(
        settings.input,
        settings.output_dir,
        tokenizer,
        BuildSettings.of(settings),
        settings.workers or len(os.sched_getaffinity(0)),
        settings.overwrite,
        settings.runner,
        settings.max_bad_lines,
    )
    folder = settings.output_dir
    held_out = f" --eval_data={folder}" if manifest["splits"]["eval"]["examples"] else ""
    config = "roberta_base" if tokenizer.kind == "bpe" else "albert_base_v2"
    if settings.objective == "permutation":
        config = CONFIG
    say_next(f"python -m albert_tf.run_pretraining --train_data={folder}{held_out} --config={config} --output_dir=run")


def run() -> None:
    """Runs the command."""
    run_main(main, CreateSettings)


if __name__ == "__main__":
    run()
