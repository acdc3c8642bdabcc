import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tqdm import tqdm

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar, say_next
from tfrecords.manifest import MANIFEST, listed_files, word_rule_of
from tfrecords.reader import describe_records, read_examples, read_file
from tfrecords.statistics import Statistics, check_examples, readable
from tfrecords.tokenizers.base import description_in
from tfrecords.tokenizers.loading import load_tokenizer

if TYPE_CHECKING:
    from tfrecords.inspect_examples import InspectSettings


def inspect(settings: "InspectSettings", paths: list[Path], folder: Path | None) -> None:
    """Prints some examples of record files and the statistics of a sample; with a folder, writes the statistics."""
    manifest, counts = describe_records(paths, settings.split)
    if settings.sample == 0:
        _check_files(paths)
    tokenizer = load_tokenizer(settings.tokenizer or _tokenizer_beside(paths[0].parent))
    lengths = manifest["max_seq_length"], manifest["max_predictions_per_seq"]
    statistics = Statistics(tokenizer, *lengths, word_rule_of(manifest))
    wanted = min(settings.sample or sum(counts), sum(counts))
    to_print = settings.examples
    with progress_bar(total=wanted, desc="reading", unit=" examples") as bar:
        for batch in read_examples([str(path) for path in paths], 256, False, settings.seed).as_numpy_iterator():
            batch = {name: array[: wanted - bar.n] for name, array in batch.items()}
            check_examples(batch, tokenizer)
            for row in range(min(to_print, len(batch["input_ids"]))):
                tqdm.write(readable(batch, row, tokenizer) + "\n", file=sys.stdout)
            to_print -= min(to_print, len(batch["input_ids"]))
            statistics.update(batch)
            bar.update(len(batch["input_ids"]))
            if bar.n >= wanted:
                break
    print(_table(statistics.summary(), manifest))
    if folder:
        files.write_json(folder / "statistics.json", statistics.summary())
        # Imported here: it brings matplotlib.
        from tfrecords.statistics_plot import write_plot

        write_plot(statistics, _rule_shares(manifest), folder / "statistics.png")
        print(f"wrote {folder / 'statistics.json'} and {folder / 'statistics.png'}")
    say_next(
        f"python -m albert_tf.run_pretraining --train_data={paths[0].parent} --config=albert_base_v2 --output_dir=run"
    )


def _tokenizer_beside(folder: Path) -> Path:
    if description_in(folder) is None:
        raise UserError(f"'{folder}' holds no tokenizer; name the one its records were built with: --tokenizer=...")
    return folder


def _check_files(paths: list[Path]) -> None:
    for path in progress_bar(paths, desc="checking", unit=" files"):
        if not (path.parent / MANIFEST).exists():
            _check_records(path)
            continue
        sums = {file["name"]: file["sha256"] for file in listed_files(files.read_json(path.parent / MANIFEST))}
        if files.sha256(path) != sums[path.name]:
            raise UserError(
                f"'{path}' is not what {MANIFEST} beside it says (checksum); copy it again or build it anew"
            )


def _check_records(path: Path) -> None:
    count = 0
    try:
        for record in read_file(str(path)).as_numpy_iterator():
            tf.train.Example.FromString(record)
            count += 1
    except (tf.errors.DataLossError, DecodeError) as error:
        raise UserError(f"'{path}' is damaged after {count:,} records; copy it again or build it anew") from error


def _rule_shares(manifest: dict[str, Any]) -> np.ndarray:
    weights = 1 / np.arange(1, manifest.get("max_ngram", 3) + 1)
    return weights / weights.sum()


def _table(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    requested = f"  (requested: {manifest['masked_lm_prob']:.0%})" if "masked_lm_prob" in manifest else ""
    rows = [
        ("examples", f"{summary['examples']:,}"),
        ("tokens", f"{summary['tokens']:,}"),
        ("mean length", f"{summary['mean_length']:.1f} of {manifest['max_seq_length']}"),
        ("padding", f"{summary['padding_share']:.1%}"),
        ("predicted tokens", f"{summary['mask_rate']:.2%}{requested}"),
        ("  seen as [MASK]", f"{summary['mask_share']:.2%}  (rule: 80 %)"),
        ("  seen as they are", f"{summary['kept_share']:.2%}  (rule: 10 %)"),
        ("  seen as another", f"{summary['random_share']:.2%}  (rule: 10 %)"),
        ("label 1", f"{summary['label_1_share']:.2%}  (pair task: {manifest.get('pair_task', 'unknown')})"),
    ]
    runs = "  ".join(f"{n}: {share:.1%}" for n, share in enumerate(summary["run_shares"], 1))
    rule = "  ".join(f"{n}: {share:.1%}" for n, share in enumerate(_rule_shares(manifest), 1))
    # Spans that happen to lie side by side make one run, so long runs are more, and 1-word runs fewer, than spans.
    rows += [("runs of words", runs), ("  spans by rule", rule)]
    return "\n".join(f"{name:20} {value}" for name, value in rows)
