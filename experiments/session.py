"""What a command does with a table: its runs, what they are asked, its timings and its page."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from albert_tf.analysis.run_cost import inference_flops, training_flops
from experiments import page, tasks, timings
from experiments.columns import COLUMNS
from experiments.data import examples
from experiments.measures import MEASURES, OF_TASKS, Asked, settings_of
from experiments.picture import picture
from experiments.results import Result, read_results, write_results
from experiments.runs import Run, machine
from experiments.settings import TableSettings
from experiments.tables import FOLDER, Recipe, Scale, Table
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar

_ROUNDS = {"training": 12, "answers": 40}
DOCS = FOLDER.parent / "docs" / "results"


class Session:
    """What a command does with a table.

    Args:
        settings: the flags.
        settings_folder: of tables/ and scales/.

    Raises:
        UserError: there is no such table, scale or row, or what tasks are fine-tuned with or on is none.
    """

    def __init__(self, settings: TableSettings, settings_folder: Path = FOLDER):
        self.settings = settings
        self.table = Table.read(settings.table, settings_folder)
        self.scale = self.table.scaled(Scale.read(settings.scale, settings_folder))
        self.folder = Path(settings.output_dir)
        self.tasks_dir = Path(settings.tasks_dir) if settings.tasks_dir else None
        self.timings = self.folder / f"{self.table.name}-{self.scale.name}-timings.json"
        seeds = settings.seeds or self.scale.seeds
        self.seeds = range(settings.first_seed, settings.first_seed + seeds)
        self.recipes = dict(self._recipes())
        self.chosen = self._chosen()
        self.failed: list[str] = []  # Runs and measures that ended with an error.
        of_tasks = [one for one in self._measures() if one in OF_TASKS]
        if of_tasks and (self.tasks_dir or self.scale.finetuning):
            tasks.check(self.scale, of_tasks, self.tasks_dir)

    def _recipes(self) -> Iterator[tuple[str, Recipe]]:
        """The rows that this version of the library can train, with their recipes; the others are said."""
        for row in self.table.rows:
            try:
                yield row.name, row.recipe(self.scale)
            except UserError as error:
                print(f"row {row.name} is left out: {error}", file=sys.stderr)

    def _chosen(self) -> list[str]:
        """The rows that are trained and measured."""
        rows = [row.name for row in self.table.rows]
        chosen = list(dict.fromkeys(self.settings.rows.split(","))) if self.settings.rows else rows
        for name in chosen:
            if name not in rows:
                raise UserError(f"--rows: table {self.table.name} has no row '{name}'; it has {', '.join(rows)}")
        return [name for name in chosen if name in self.recipes]

    def run(self, name: str, seed: int) -> Run:
        """Gives a run of a row."""
        return Run(self.recipes[name], seed, self.folder / "runs")

    def examples(self, recipe: Recipe) -> Path:
        """Gives the examples of a recipe, built where they are missing."""
        folder = files.make_output_dir(self.folder / "data")
        with files.locked(folder, wait=True):
            return examples(recipe, self.settings.corpus, folder)

    def train(self) -> None:
        """Makes the runs that are missing, every row with one seed before the next; not what another process makes."""
        missing = [(name, seed) for seed in self.seeds for name in self.chosen if not self.run(name, seed).result]
        print(f"{len(self.seeds) * len(self.chosen) - len(missing)} runs are done, {len(missing)} to make")
        started, elsewhere = time.monotonic(), []
        for number, (name, seed) in enumerate(missing):
            left = (time.monotonic() - started) / number * (len(missing) - number) if number else 0
            print(f"\n== run {number + 1} of {len(missing)}: {name}, seed {seed}{_minutes(left)}", flush=True)
            try:
                self.run(name, seed).train(self.examples(self.recipes[name]))
            except files.LockedError:
                elsewhere.append(f"{name}, seed {seed}")
            except UserError as error:
                self._fail(f"{name}, seed {seed}", error)
            keras.utils.clear_session()
        if elsewhere:
            print(f"another process was making: {'; '.join(elsewhere)}", file=sys.stderr)

    def _fail(self, what: str, error: UserError) -> None:
        self.failed.append(what)
        print(f"{what} ended: {error}", file=sys.stderr)

    def measure(self) -> None:
        """Asks the runs that are done what the table's columns are measured from, and comparisons."""
        measures = [one for one in self._measures() if self.tasks_dir or one not in OF_TASKS]
        if missing_tasks := [one for one in self._measures() if one not in measures]:
            print(f"without --tasks_dir there are no figures of {', '.join(missing_tasks)}", file=sys.stderr)
        runs = [(name, self.run(name, seed)) for seed in self.seeds for name in self.chosen]
        done = [(name, run) for name, run in runs if run.result]
        missing = [(*one, measure) for one in done for measure in measures if self._figures(one[1], measure) is None]
        for name, run, measure in progress_bar(missing, desc="measuring", unit=" runs", disable=not missing):
            try:
                self._ask(run, measure)
            except files.LockedError:
                pass  # Another process asks it.
            except UserError as error:
                self._fail(f"{name}, seed {run.seed}, {measure}", error)
            keras.utils.clear_session()

    def _ask(self, run: Run, measure: str) -> None:
        with files.locked(run.folder):
            if self._figures(run, measure) is None:
                figures = (MEASURES | OF_TASKS)[measure](Asked(run, self.examples, self.scale, self.tasks_dir))
                run.note(measure, figures, settings_of(measure, self.scale, self.tasks_dir))

    def _figures(self, run: Run, measure: str) -> dict[str, float] | None:
        return run.measured(measure, settings_of(measure, self.scale, self.tasks_dir))

    def _measures(self) -> list[str]:
        columns = {*self.table.columns, *(one.by for one in self.table.comparisons)}
        return sorted({COLUMNS[name].measure for name in columns} - {""})

    def time(self) -> None:
        """Measures a step and an answer of the rows that have a run, unless just these are measured."""
        # Of two processes that time at once neither would measure anything.
        with files.locked(self.folder, wait=True):
            self._time()

    def _time(self) -> None:
        done = {name: runs[-1] for name, runs in self._done().items()}
        kept, here = self._timings(), machine()
        recipes = {name: run.recipe.key for name, run in done.items()}
        if not done or (kept["recipes"] == recipes and kept.get("machine", here) == here):
            return
        print(f"\n== a step and an answer of {len(done)} rows in turn, on {here}", flush=True)
        data = {name: self.examples(self.recipes[name]) for name in done}
        steps = timings.training_times(done, data, _ROUNDS["training"])
        answers = timings.answer_times(done, self.scale.inference_length, _ROUNDS["answers"])
        times = {"seconds_per_step": steps, "inference_ms": answers}
        files.write_json(self.timings, {"machine": here, "recipes": recipes} | times)

    def _timings(self) -> dict[str, Any]:
        """What was timed, and of which recipes; of before the machine was noted it says none."""
        return files.read_json(self.timings) if self.timings.is_file() else {"recipes": {}}

    def _done(self) -> dict[str, list[Run]]:
        """By row the runs that are done, of every seed; no row without any."""
        found = {}
        for name, recipe in self.recipes.items():
            folders = (self.folder / "runs" / recipe.key).glob("seed-*")
            seeds = sorted(int(folder.name.removeprefix("seed-")) for folder in folders)
            if runs := [run for run in (self.run(name, seed) for seed in seeds) if run.result]:
                found[name] = runs
        return found

    def results(self) -> list[Result]:
        """Gives the results of the runs that are done, of all rows and of every seed."""
        timed = self._timings()
        return [self._result(name, run, timed) for name, runs in self._done().items() for run in runs]

    def _result(self, name: str, run: Run, timed: dict[str, Any]) -> Result:
        recipe, result = run.recipe, run.result or {}
        if timed["recipes"].get(name) != recipe.key:
            timed = {}  # They are of a row that was another.
        config, data = recipe.albert_config(), recipe.build_settings()
        rows = result["updates"] * recipe.training["train_batch_size"]
        pairs = [value for key, value in result.items() if key in ("sentence_order_accuracy", "next_sentence_accuracy")]
        length, predictions = self.scale.inference_length, data.max_predictions_per_seq or 0
        return Result(
            row=name, seed=run.seed, updates=result["updates"], parameters=result["parameters"],
            masked_lm_loss=result["masked_lm_loss"], masked_lm_accuracy=result["masked_lm_accuracy"],
            pair_accuracy=pairs[0] if pairs else None, training_seconds=result["training_seconds"],
            seconds_per_step=timed.get("seconds_per_step", {}).get(name),
            training_flops=training_flops(config, data.max_seq_length, rows, result, recipe.training, predictions),
            inference_flops_per_token=inference_flops(config, length, result) / length,
            inference_ms=timed.get("inference_ms", {}).get(name), machine=result["machine"],
            timed_on=timed.get("machine"), measured=self._measured(run),
        )  # fmt: skip

    def _measured(self, run: Run) -> dict[str, float]:
        """What the table's measures gave; other tables' may be there, too."""
        made = (self._figures(run, one) or {} for one in self._measures())
        return {name: value for figures in made for name, value in figures.items()}

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
            kept = files.make_output_dir(DOCS / "experiments")
            csv, png = (f"{kept.name}/{path.name}" for path in self._write_figures(kept, found))
            text = self._text(found, csv, png, "reading_the_tables.md")
            pages = [str(path) for path in sorted(DOCS.glob("*.md")) if page.insert(path, self.table.name, text)]
            print(f"wrote {kept} and {', '.join(pages) or 'no page: none has the markers'}")

    def _write_figures(self, folder: Path, found: list[Result]) -> tuple[Path, Path]:
        csv, png = (folder / f"{self.table.name}-{self.scale.name}.{kind}" for kind in ("csv", "png"))
        write_results(found, csv)
        if self.table.has_picture:
            with files.replacing(png) as temporary:
                temporary.write_bytes(picture(self.table, found))
        return csv, png

    def _text(self, found: list[Result], csv: str, png: str, legend: str = "") -> str:
        command = f"python -m experiments.run {self.table.name} --output_dir=out --corpus='text/*.jsonl.gz'"
        if self.scale.backend != "tensorflow":
            command = f"KERAS_BACKEND={self.scale.backend} {command}"
        if any(one in OF_TASKS for one in self._measures()):
            command += " --tasks_dir=glue"
        seeds = [page.seeds_of(found, name) for name in {result.row for result in found}]
        command += f" --scale={self.scale.name} --seeds={min(map(len, seeds))}"
        if (first := min(map(min, seeds))) != 1:
            command += f" --first_seed={first}"
        return page.render(self.table, self.scale, found, command, png, csv, legend)


def _minutes(seconds: float) -> str:
    return f"; about {seconds / 60:.0f} minutes left" if seconds else ""
