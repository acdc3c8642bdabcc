"""Measures a fine-tuned model on a labelled table, a pre-trained one on held-out examples, or an embedder on a suite.

python -m albert_tf.run_evaluation --model=run --data_file=other.csv
python -m albert_tf.run_evaluation --model=run --train_data='data/train-*' --eval_data='data/eval-*'
python -m albert_tf.run_evaluation --model=run --suite=embeddings --data_dir=sets
"""

import dataclasses
import itertools
import os
from pathlib import Path
from typing import ClassVar

from albert_tf.choices import DEPTH_HELP
from albert_tf.loading.hub import check_model, find_model, is_preset
from albert_tf.suites.sets import find_sets
from albert_tf.tasks.tables.data_file import FileOptions, columns_of
from albert_tf.trainer_settings import Applied, Columns, DataFile, Records
from tfrecords.base import files
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.reading.manifest import check_held_out, read_manifest


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfFile(DataFile, Columns, only="data_file"):
    """Settings of a labelled table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfSuite(CheckedSettings, only="suite"):
    """Settings of a suite."""

    suite: str = setting("", help="embeddings: similarity and search", choices=("", "embeddings"))
    data_dir: str = setting("", help="folders of the suite's data sets, separated by commas")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfRecords(Records, only="eval_data"):
    """Settings of held-out examples."""

    output: str = setting("", help="JSON file to write the scores on --eval_data to")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(OfFile, OfRecords, OfSuite, Applied):
    """The command's flags."""

    groups: ClassVar[dict[str, str]] = {
        "A file of examples": "data_file output_dir text_column second_text_column label_column encoding",
        "Training examples": "train_data eval_data max_eval_steps output",
        "A suite of data sets": "suite data_dir",
        "All": "depth batch_size",
    }

    output_dir: str = setting(
        "",
        help="folder to write: predictions, figures as JSON, a picture; empty: evaluation/NAME in --model, or beside "
        "it if it is a version",
    )
    depth: int = setting(0, help=DEPTH_HELP, at_least=0)

    def __post_init__(self):
        super().__post_init__()
        refuse({
            f"--suite={self.suite} needs the folders of its sets; give --data_dir=sets":
                self.suite and not self.data_dir,
            "give --data_file=... to evaluate a fine-tuned model, --train_data=... and --eval_data=... for a "
            "pre-trained one, or --suite=embeddings and --data_dir=... for an embedder":
                not self.data_file and not self.suite and not (self.train_data and self.eval_data),
            "--data_file, --eval_data and --suite exclude each other; give one":
                bool(self.data_file) + bool(self.suite) + bool(self.eval_data) > 1,
            f"--output_dir={self.output_dir} is not for --eval_data; give --output":
                self.output_dir and self.eval_data,
        })  # fmt: skip


def main(settings: EvaluationSettings) -> None:
    """Evaluates a model."""
    check_model(settings.model, settings.allow_pickle)
    if settings.data_file:
        _evaluate_file(settings)
    elif settings.suite:
        _evaluate_suite(settings)
    else:
        _evaluate_records(settings)


def _evaluate_file(settings: EvaluationSettings) -> None:
    place = find_model(settings.model)
    folder = _folder(settings, place)
    options = FileOptions.of(settings)
    columns_of(options)
    start_tensorflow()
    from albert_tf.training.file_evaluation import evaluate_file

    output_dir = settings.output_dir or results_folder(folder, settings.data_file)
    evaluate_file(settings.model, options, str(output_dir), settings.depth, settings.batch_size)


def results_folder(folder: Path, data_file: str) -> Path:
    """Returns the folder for a file's results, named after it; with a number if that is another file's."""
    name, own = Path(data_file).name.removesuffix(".gz"), {"", os.path.abspath(data_file)}
    places = (folder / f"{Path(name).stem}{f'-{n}' * (n > 1)}" for n in itertools.count(1))
    return next(place for place in places if _measured(place) in own)


def _measured(place: Path) -> str:
    # The data file whose results a folder holds.
    about = place / "evaluation.json"
    return os.path.abspath(files.read_object(about).get("data_file", "")) if about.is_file() else ""


def _folder(settings: EvaluationSettings, place: Path) -> Path:
    if (is_preset(settings.model) or place != Path(settings.model)) and not settings.output_dir:
        raise UserError(
            f"'{settings.model}' lies in a cache of downloads, where nothing is written; give --output_dir=FOLDER"
        )
    return (place if place.is_dir() else place.parent) / "evaluation"


def _evaluate_suite(settings: EvaluationSettings) -> None:
    output_dir = settings.output_dir or _folder(settings, find_model(settings.model)) / settings.suite
    sets = find_sets(settings.data_dir)
    start_tensorflow()
    from albert_tf.suites.run import evaluate_embeddings

    evaluate_embeddings(settings.model, sets, str(output_dir), settings.depth, settings.batch_size)


def _evaluate_records(settings: EvaluationSettings) -> None:
    for patterns in (settings.train_data, settings.eval_data):
        read_manifest(patterns)
    check_held_out([settings.train_data], [settings.eval_data])
    start_tensorflow()
    from albert_tf.training.evaluation import evaluate_records

    evaluate_records(settings)


def run() -> None:
    """Runs the command."""
    run_main(main, EvaluationSettings)


if __name__ == "__main__":
    run()
