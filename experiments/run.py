"""Runs a table and writes its page: `python -m experiments.run TABLE --output_dir=out --corpus='text/*.jsonl.gz'`.

What is there already is kept: the same command goes on after a kill, and does only what is missing. A table is a
folder of settings files in experiments/tables, a file for each row; experiments/scales has the sizes.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keras

from experiments import page, timings
from experiments.costs import inference_flops, training_flops
from experiments.data import examples
from experiments.picture import picture
from experiments.results import Result, read_results, write_results
from experiments.runs import Run, forget_graphs
from experiments.tables import FOLDER, Recipe, Scale, Table
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

_ROUNDS = {"training": 12, "answers": 40}
DOCS = FOLDER.parent / "docs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings(CheckedSettings):
    """Holds the flags: which table, at what size, and where it goes."""

    table: str = setting(help="Folder of experiments/tables; it may be given without --table=, first of all.")
    output_dir: str = setting(help="Folder for vocabularies, examples, runs, results and the page.")
    corpus: str = setting("", help="Globs of text files by commas; not needed where the examples are built.")
    scale: str = setting("small", help="File of experiments/scales: tiny, small (two cores) or gpu.")
    seeds: int = setting(0, help="Runs of each row; 0: as the scale says.", at_least=0)
    first_seed: int = setting(1, help="Seed of the first of them; the others follow.", at_least=0)
    rows: str = setting("", help="Only these rows, by commas.")
    stages: str = setting("train,time,page", help="What is done of these three, by commas.")
    results: str = setting("", help="A CSV file of results to write the page from; nothing is run.")
    publish: bool = setting(False, help="Write results/ of this folder, and between the table's markers in docs/, too.")
    dryrun: bool = setting(False, help="Walk all of it at scale tiny with one seed, and keep nothing.")


class Session:
    """What a command does with a table.

    Args:
        settings: the flags.
        settings_folder: of tables/ and scales/.

    Raises:
        UserError: there is no such table, scale or row.
    """

    def __init__(self, settings: TableSettings, settings_folder: Path = FOLDER):
        self.settings = settings
        self.table = Table.read(settings.table, settings_folder)
        self.scale = Scale.read(settings.scale, settings_folder)
        self.folder = Path(settings.output_dir)
        self.timings = self.folder / f"{self.table.name}-{self.scale.name}-timings.json"
        seeds = settings.seeds or self.scale.seeds
        self.seeds = range(settings.first_seed, settings.first_seed + seeds)
        self.recipes = dict(self._recipes())

    def _recipes(self) -> Iterator[tuple[str, Recipe]]:
        """The rows that this version of the library can train, with their recipes; the others are said."""
        chosen = self.settings.rows.split(",") if self.settings.rows else [row.name for row in self.table.rows]
        rows = {row.name: row for row in self.table.rows}
        for name in chosen:
            if name not in rows:
                raise UserError(f"--rows: table {self.table.name} has no row '{name}'; it has {', '.join(rows)}")
            try:
                yield name, rows[name].recipe(self.scale)
            except UserError as error:
                print(f"row {name} is left out: {error}", file=sys.stderr)

    def run(self, name: str, seed: int) -> Run:
        """Gives a run of a row."""
        return Run(self.recipes[name], seed, self.folder / "runs")

    def examples(self, name: str) -> Path:
        """Gives the examples of a row, built where they are missing."""
        return examples(self.recipes[name], self.settings.corpus, self.folder / "data")

    def train(self) -> None:
        """Makes the runs that are missing, every row with one seed before the next."""
        missing = [(name, seed) for seed in self.seeds for name in self.recipes if not self.run(name, seed).result]
        print(f"{len(self.seeds) * len(self.recipes) - len(missing)} runs are done, {len(missing)} to make")
        started, failed = time.monotonic(), []
        for number, (name, seed) in enumerate(missing):
            left = (time.monotonic() - started) / number * (len(missing) - number) if number else 0
            print(f"\n== run {number + 1} of {len(missing)}: {name}, seed {seed}{_minutes(left)}", flush=True)
            try:
                self.run(name, seed).train(self.examples(name))
            except UserError as error:
                failed.append(f"{name}, seed {seed}")
                print(f"{failed[-1]} ended: {error}", file=sys.stderr)
            forget_graphs()
        if failed:
            print(f"without result: {'; '.join(failed)}; the same command tries again", file=sys.stderr)

    def time(self) -> None:
        """Measures a step and an answer of the rows that have a run, unless just these are measured."""
        done = {name: run for name in self.recipes for seed in self.seeds if (run := self.run(name, seed)).result}
        kept = files.read_json(self.timings) if self.timings.is_file() else {"recipes": {}}
        recipes = {name: run.recipe.key for name, run in done.items()}
        if not done or kept["recipes"] == recipes:
            return
        print(f"\n== a step and an answer of {len(done)} rows in turn", flush=True)
        data = {name: self.examples(name) for name in done}
        steps = timings.training_times(done, data, _ROUNDS["training"])
        answers = timings.answer_times(done, self.scale.inference_length, _ROUNDS["answers"])
        files.write_json(self.timings, {"recipes": recipes, "seconds_per_step": steps, "inference_ms": answers})

    def results(self) -> list[Result]:
        """Gives the results of the runs that are done, of all rows and of every seed."""
        measured = files.read_json(self.timings) if self.timings.is_file() else {}
        found = []
        for name, recipe in self.recipes.items():
            folders = sorted((self.folder / "runs" / recipe.key).glob("seed-*"))
            for seed in sorted(int(folder.name.removeprefix("seed-")) for folder in folders):
                if result := self.run(name, seed).result:
                    found.append(self._result(name, seed, result, measured))
        return found

    def _result(self, name: str, seed: int, result: dict, measured: dict) -> Result:
        recipe = self.recipes[name]
        config, data = recipe.albert_config(), recipe.build_settings()
        rows = result["updates"] * recipe.training["train_batch_size"]
        pairs = [value for key, value in result.items() if key in ("sentence_order_accuracy", "next_sentence_accuracy")]
        length = self.scale.inference_length
        return Result(
            row=name, seed=seed, updates=result["updates"], parameters=result["parameters"],
            masked_lm_loss=result["masked_lm_loss"], masked_lm_accuracy=result["masked_lm_accuracy"],
            pair_accuracy=pairs[0] if pairs else None, training_seconds=result["training_seconds"],
            seconds_per_step=measured.get("seconds_per_step", {}).get(name),
            training_flops=training_flops(config, data.max_seq_length, rows, result),
            inference_flops_per_token=inference_flops(config, length, result) / length,
            inference_ms=measured.get("inference_ms", {}).get(name), machine=result["machine"],
        )  # fmt: skip

    def write_page(self) -> None:
        """Writes the results, the picture and the page of what is done; with --publish into this repository too."""
        found = read_results(Path(self.settings.results)) if self.settings.results else self.results()
        if not found:
            raise UserError("there is no result yet; a page is written once a run is done")
        csv, png = self._write_figures(self.folder, found)
        path = csv.with_suffix(".md")
        with files.replacing(path) as temporary:
            temporary.write_text(f"# {self.table.title}\n\n{self._text(found, csv.name, png.name)}", encoding="utf-8")
        print(f"wrote {path}")
        if self.settings.publish:
            names = [f"../experiments/results/{path.name}" for path in self._write_figures(FOLDER / "results", found)]
            text = self._text(found, *names)
            pages = [str(path) for path in sorted(DOCS.glob("*.md")) if page.insert(path, self.table.name, text)]
            print(f"wrote {FOLDER / 'results'} and {', '.join(pages) or 'no page: none has the markers'}")

    def _write_figures(self, folder: Path, found: list[Result]) -> tuple[Path, Path]:
        csv, png = (folder / f"{self.table.name}-{self.scale.name}.{kind}" for kind in ("csv", "png"))
        write_results(found, csv)
        with files.replacing(png) as temporary:
            temporary.write_bytes(picture(self.table, found))
        return csv, png

    def _text(self, found: list[Result], csv: str, png: str) -> str:
        command = f"python -m experiments.run {self.table.name} --output_dir=out --corpus='text/*.jsonl.gz'"
        command += f" --scale={self.scale.name} --seeds={len({result.seed for result in found})}"
        return page.render(self.table, self.scale, found, command, png, csv)


def main(settings: TableSettings, settings_folder: Path = FOLDER) -> None:
    """Does what the flags ask for, with the tables and scales of a folder."""
    if settings.dryrun:
        return _walk(settings, settings_folder)
    session = Session(settings, settings_folder)
    files.make_output_dir(session.folder)
    if keras.backend.backend() != session.scale.backend:
        raise UserError(f"scale {session.scale.name} is for KERAS_BACKEND={session.scale.backend}")
    stages = {"train": session.train, "time": session.time, "page": session.write_page}
    chosen = ["page"] if settings.results else settings.stages.split(",")
    for stage in chosen:
        if stage not in stages:
            raise UserError(f"--stages: '{stage}' is none of {', '.join(stages)}")
    with files.locked(session.folder):
        for stage in chosen:
            stages[stage]()


def _walk(settings: TableSettings, settings_folder: Path) -> None:
    """--dryrun: all stages at scale tiny with one seed, twice, in a folder that is removed."""
    with files.trial_folder(settings.output_dir, ".dryrun") as folder:
        small = dataclasses.replace(
            settings, output_dir=str(folder), scale="tiny", seeds=1, publish=False, dryrun=False
        )
        main(small, settings_folder)
        main(small, settings_folder)  # Does nothing again.
        print("dry run: built examples, trained, measured and wrote the page; nothing is kept")


def _minutes(seconds: float) -> str:
    return f"; about {seconds / 60:.0f} minutes left" if seconds else ""


def run() -> None:
    """Runs the command; the table may stand first, without --table=."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--table={sys.argv[1]}"
    run_main(main, TableSettings)


if __name__ == "__main__":
    run()
