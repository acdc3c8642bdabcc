"""Turns text into training examples: TFRecord files for pre-training.

python -m tfrecords.create_pretraining_data --input='corpus/*.txt' --output_dir=data --tokenizer=spm.model --seed=1
python -m tfrecords.create_pretraining_data --input=corpus.jsonl.gz --text_field=body --output_dir=data \\
    --tokenizer=tokenizer --held_out_fraction=0.01
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import cores
from tfrecords.base.script import run_main, say_next
from tfrecords.base.settings import setting
from tfrecords.building.builder import build
from tfrecords.building.runners import RUNNERS
from tfrecords.building.settings import BuildSettings, TextSettings
from tfrecords.corpus.documents import find_files, sample_texts, warn_of_markup
from tfrecords.examples.permutation import CONFIG
from tfrecords.tokenizers.base import Tokenizer


@dataclass(frozen=True, kw_only=True)
class CreateSettings(BuildSettings, TextSettings):
    """The command's flags: what to build, and how."""

    groups: ClassVar[dict[str, str]] = {
        "Data": "input held_out_fraction text_field split_sentences line_documents dupe_factor lower_case",
        "Examples": "max_seq_length objective pair_task masking masked_lm_prob ngram input_format",
        "Run": "seed workers runner overwrite",
    }

    output_dir: str = setting(help="Folder for the records, the manifest and the tokenizer.")
    tokenizer: str = setting(help="SentencePiece .model, WordPiece vocab .txt, folder, or a model on the hub.")
    max_unknown_share: float = setting(
        0.2, help="Largest share of the text's tokens that may be unknown to the vocabulary.", at_least=0.0, at_most=1.0
    )
    workers: int | None = setting(None, help="Number of processes; left out: one for each core it may use.", at_least=1)
    runner: str = setting("local", help="local: processes here; ray: the cluster of RAY_ADDRESS.", choices=RUNNERS)
    overwrite: bool = setting(False, help="Replace records of other settings or another corpus in --output_dir.")


def main(settings: CreateSettings) -> None:
    """Builds the records."""
    # Not at the top: tokenizers bring libraries that --help and wrong flags have no need of.
    from tfrecords.tokenizers.loading import load_tokenizer

    paths = find_files(settings.input)
    tokenizer = load_tokenizer(settings.tokenizer, settings.lower_case, settings.keep_accents)
    warn_of_markup(paths, settings.text_field)
    share = unknown_share(paths, tokenizer, settings.text_field)
    check_unknown_share(share, settings.max_unknown_share, tokenizer)
    print(f"{share:.1%} of the tokens are unknown to the vocabulary, by a sample")
    manifest = build(
        settings.input,
        settings.output_dir,
        tokenizer,
        BuildSettings.of(settings),
        settings.workers or cores(),
        settings.overwrite,
        settings.runner,
    )
    folder = settings.output_dir
    held_out = f" --eval_data={folder}" if manifest["splits"]["eval"]["examples"] else ""
    config = "roberta_base" if tokenizer.kind == "bpe" else "albert_base_v2"
    if settings.objective == "permutation":
        config = CONFIG
    say_next(f"python -m albert_tf.run_pretraining --train_data={folder}{held_out} --config={config} --output_dir=run")


def unknown_share(paths: Sequence[str | os.PathLike], tokenizer: Tokenizer, text_field: str = "text") -> float:
    """Returns unknown tokens' share of a corpus sample, 0 to 1."""
    tokens = unknown = 0
    for texts in sample_texts(paths, text_field):
        ids, _ = tokenizer.encode_batch(texts)
        tokens += len(ids)
        unknown += int(np.count_nonzero(ids == tokenizer.unk_id))
    return unknown / max(tokens, 1)


def check_unknown_share(share: float, limit: float, tokenizer: Tokenizer) -> None:
    """Raises UserError if the share of unknown tokens exceeds `limit`."""
    if share > limit:
        raise UserError(
            f"{share:.0%} of the corpus's tokens are unknown to the tokenizer ({tokenizer.pieces[tokenizer.unk_id]}): "
            "it was made for another language or casing; train one on this text (python -m tfrecords.train_tokenizer), "
            "or --max_unknown_share=1 to build all the same"
        )


def run() -> None:
    """Runs the command."""
    run_main(main, CreateSettings)


if __name__ == "__main__":
    run()
