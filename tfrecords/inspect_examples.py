"""Shows training examples as text, with statistics of a sample or of all of them.

python -m tfrecords.inspect_examples --input=data --examples=2
python -m tfrecords.inspect_examples --input=data --sample=0 --output_dir=inspection
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar, run_main, say_next
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.manifest import MANIFEST, SPLITS, find_records, listed_files, word_rule_of
from tfrecords.statistics import LONGEST_RUN, Statistics, readable
from tfrecords.tokenizers.base import description_in
from tfrecords.tokenizers.loading import load_tokenizer


@dataclass(frozen=True)
class InspectSettings(CheckedSettings):
    """Which records to show, and how many."""

    input: str = setting(help="Folder or comma-separated globs of record files.")
    split: str = setting("train", help="Part of a folder's files to read.", choices=SPLITS)
    tokenizer: str = setting("", help="Tokenizer to use if the folder of the records has none.")
    examples: int = setting(3, help="Examples to print.", at_least=0)
    sample: int = setting(
        10000, help="Number of examples to count; 0 counts all, and checks every file's checksum.", at_least=0
    )
    output_dir: str = setting("", help="Folder for statistics.json and statistics.png.")
    seed: int = setting(0, help="Seed for the masks of dynamic records.")


def main(settings: InspectSettings) -> None:
    """Prints some examples and the statistics of a sample; optionally writes the statistics."""
    folder = files.make_output_dir(settings.output_dir) if settings.output_dir else None
    paths = find_records(settings.input, settings.split)
    # Imported here: --help and wrong flags need no TensorFlow.
    from tfrecords.reader import describe_records, read_examples

    manifest, counts = describe_records(paths, settings.split)
    if settings.sample == 0:
        _check_sums(paths)
    tokenizer = load_tokenizer(settings.tokenizer or _tokenizer_beside(paths[0].parent))
    lengths = manifest["max_seq_length"], manifest["max_predictions_per_seq"]
    statistics = Statistics(tokenizer, *lengths, word_rule_of(manifest))
    wanted = min(settings.sample or sum(counts), sum(counts))
    to_print = settings.examples
    with progress_bar(total=wanted, desc="reading", unit=" examples") as bar:
        for batch in read_examples([str(path) for path in paths], 256, False, settings.seed).as_numpy_iterator():
            batch = {name: array[: wanted - bar.n] for name, array in batch.items()}
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
        _plot(statistics, manifest, folder / "statistics.png")
        print(f"wrote {folder / 'statistics.json'} and {folder / 'statistics.png'}")
    say_next(
        f"python -m albert_tf.run_pretraining --train_data={paths[0].parent} --config=albert_base_v2 --output_dir=run"
    )


def _tokenizer_beside(folder: Path) -> Path:
    if description_in(folder) is None:
        raise UserError(f"'{folder}' holds no tokenizer; name the one its records were built with: --tokenizer=...")
    return folder


def _check_sums(paths: list[Path]) -> None:
    for path in progress_bar(paths, desc="checksums", unit=" files"):
        if not (path.parent / MANIFEST).exists():
            continue
        sums = {file["name"]: file["sha256"] for file in listed_files(files.read_json(path.parent / MANIFEST))}
        if files.sha256(path) != sums[path.name]:
            raise UserError(
                f"'{path}' is not what {MANIFEST} beside it says (checksum); copy it again or build it anew"
            )


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


def _plot(statistics: Statistics, manifest: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
    _histogram(axes[0, 0], statistics.lengths, "How long examples are", "tokens in an example")
    _histogram(axes[0, 1], statistics.predictions, "How many tokens are predicted", "predicted tokens in an example")
    summary = statistics.summary()
    axes[1, 0].bar(range(1, LONGEST_RUN + 1), summary["run_shares"], label="runs of predicted words")
    rule = _rule_shares(manifest)
    axes[1, 0].plot(range(1, len(rule) + 1), rule, "k_", markersize=28, label="spans by the rule")
    axes[1, 0].set(xlabel="words", ylabel="share")
    axes[1, 0].set_title("What is predicted together")
    axes[1, 0].legend(frameon=False)
    shares = ("mask_share", "kept_share", "random_share", "label_1_share", "padding_share")
    axes[1, 1].barh([name.removesuffix("_share").replace("_", " ") for name in shares], [summary[n] for n in shares])
    axes[1, 1].set(xlim=(0, 1), xlabel="share", title="Predicted tokens, labels and padding")
    figure.suptitle(f"{summary['examples']:,} examples, {summary['tokens']:,} tokens")
    with files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)


def _histogram(axes: Any, counts: np.ndarray, title: str, label: str) -> None:
    axes.hist(np.arange(len(counts)), bins=min(64, len(counts)), weights=counts)
    axes.set(title=title, xlabel=label, ylabel="examples")


def run() -> None:
    """Runs the command."""
    run_main(main, InspectSettings)


if __name__ == "__main__":
    run()
