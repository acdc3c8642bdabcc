"""Tables, their rows and scales, read from the settings files of this folder."""

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from albert_tf.config import AlbertConfig
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training.pretraining import PretrainingSettings
from experiments.columns import COLUMNS, USUAL
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.build_settings import BuildSettings
from tfrecords.train_tokenizer import TokenizerSettings

FOLDER = Path(__file__).parent
# What a row may say, and a scale, of the settings of examples, model and training.
_PARTS = ("data", "config", "training")
# What a table may change of a scale for all its rows.
_SCALE_PARTS = ("vocabulary", *_PARTS, "finetuning")
_KINDS = (
    ("vocabulary", TokenizerSettings),
    ("data", BuildSettings),
    ("config", AlbertConfig),
    ("training", PretrainingSettings),
)
# Of the training settings, those that the runner itself gives.
_GIVEN = ("train_data", "eval_data", "output_dir", "config", "seed", "pack_rows", "dryrun")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """Says how large the models, the data and the runs of every table are.

    Attributes:
        name: of its file.
        description: a sentence or two for the page: what was chosen, and how.
        vocabulary: settings of `tfrecords.train_tokenizer`, by their names.
        data: fields of BuildSettings.
        config: fields of AlbertConfig; the vocabulary's size is put in.
        training: fields of PretrainingSettings.
        finetuning: fields of FinetuningSettings, for columns of tasks.
        seeds: runs of a row where the command does not say.
        inference_length: tokens of the row whose answer is timed.
        backend: of Keras.
    """

    name: str
    description: str
    vocabulary: dict[str, Any]
    data: dict[str, Any]
    config: dict[str, Any]
    training: dict[str, Any]
    finetuning: dict[str, Any] = dataclasses.field(default_factory=dict)
    seeds: int = 3
    inference_length: int = 128
    backend: str = "tensorflow"

    @classmethod
    def read(cls, name: str, folder: Path = FOLDER) -> Self:
        """Reads a scale.

        >>> Scale.read("small").config["hidden_size"]
        128

        Raises:
            UserError: there is none of that name, or its file says what no scale has.
        """
        path = folder / "scales" / f"{name}.json"
        return _made(cls, {"name": name} | _read(path, "scale", name, folder), path)

    def finetuning_settings(self, **given: Any) -> FinetuningSettings:
        """Gives the settings of a fine-tuning.

        Args:
            **given: what the runner says of it; the scale says the rest.

        Raises:
            UserError: the scale does not say how to fine-tune, or says what no fine-tuning has.
        """
        if not self.finetuning:
            raise UserError(f"scale {self.name} does not say how to fine-tune")
        for name in self.finetuning.keys() & given:
            raise UserError(f"finetuning setting '{name}' is given by the runner")
        return _made(FinetuningSettings, self.finetuning | given, "finetuning")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Says in what a row of a table differs from its scale.

    Attributes:
        name: of its file.
        title: in words, for the page.
        data: fields of BuildSettings.
        config: fields of AlbertConfig.
        training: fields of PretrainingSettings.
        at: by the name of a scale, any of these three as they are there.
        published: what the papers give for it, as the page shows it.
    """

    name: str
    title: str
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    at: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    published: str = ""

    def recipe(self, scale: Scale) -> "Recipe":
        """Gives the whole settings of the row at a scale.

        Raises:
            UserError: this version of the library does not know a field, or knows that its value is impossible.
        """
        here = self.at.get(scale.name, {})
        data, config, training = (getattr(scale, part) | getattr(self, part) | here.get(part, {}) for part in _PARTS)
        return Recipe(scale.vocabulary, data, config, training)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Holds all that decides a run beside corpus and seed; see `Scale` for the fields.

    Raises:
        UserError: this version of the library does not know a field, or knows that its value is impossible.
    """

    vocabulary: dict[str, Any]
    data: dict[str, Any]
    config: dict[str, Any]
    training: dict[str, Any]

    def __post_init__(self) -> None:
        """Makes the library's own settings of them once, which check themselves."""
        _made(TokenizerSettings, {"input": "corpus.txt", "output_prefix": ""} | self.vocabulary, "vocabulary")
        self.build_settings()
        self.albert_config()
        for name in self.training.keys() & set(_GIVEN):
            raise UserError(f"training setting '{name}' is given by the runner")
        self.training_settings(Path("run"), Path("data"), Path("config.json"), 1)

    def with_data(self, data: dict[str, Any]) -> "Recipe":
        """Gives the recipe on other examples."""
        return dataclasses.replace(self, data=data)

    def build_settings(self) -> BuildSettings:
        """Gives the settings of the examples."""
        return _made(BuildSettings, self.data, "data")

    def albert_config(self) -> AlbertConfig:
        """Gives the model's configuration."""
        size = {"vocab_size": self.vocabulary["vocab_size"]}
        return AlbertConfig().replace(**size | self.config)

    def training_settings(self, folder: Path, data: Path, config: Path, seed: int) -> PretrainingSettings:
        """Gives the settings of a run.

        Args:
            folder: the run's.
            data: that of the examples.
            config: the file of the model's configuration.
            seed: of weights, dropout, masks and the order of examples.
        """
        given = {"train_data": str(data), "eval_data": str(data), "output_dir": str(folder), "config": str(config)}
        # A row is a row, so that times and FLOPs of one are those of another.
        return _made(PretrainingSettings, self.training | given | {"seed": seed, "pack_rows": False}, "training")

    def part_key(self, *parts: str) -> str:
        """Names some of the parts: equal parts have equal names, whatever table they are of.

        What has the library's default counts as not said, so that new fields change no name.
        """
        defaults = {kind: {field.name: field.default for field in dataclasses.fields(made)} for kind, made in _KINDS}
        values = {
            part: {name: value for name, value in getattr(self, part).items() if defaults[part].get(name) != value}
            for part in parts
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]

    @property
    def key(self) -> str:
        """Names the recipe: rows of several tables that ask for the same runs share them."""
        return self.part_key("vocabulary", *_PARTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Says which two rows are compared, or which row with a number, and what is published of them.

    Attributes:
        row: that is judged; of a list, such as the rates of one optimizer, the row with the best mean is.
        against: the row that it is judged by, or a list likewise; or a number, such as what chance would reach.
        by: the name of the column that is compared, see `experiments.columns`.
        published: the direction that is published, "better", "worse" or "equal"; "" where nothing is.
        source: the published numbers and where they stand.
    """

    row: str | list[str]
    against: str | float | list[str]
    by: str = "loss"
    published: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Raises UserError for a direction or a column that is none, and for a side without rows."""
        _known_column(self.by)
        if [] in (self.row, self.against):
            raise UserError("a comparison has a side without rows")
        if self.published not in ("", "better", "worse", "equal"):
            raise UserError(f"published '{self.published}' is none of better, worse, equal")

    def rows(self) -> list[list[str]]:
        """Gives the rows that stand for each of the two sides: none for a number."""
        sides = (self.row, self.against)
        return [side if isinstance(side, list) else [side] if isinstance(side, str) else [] for side in sides]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Holds a question and the rows that answer it.

    Attributes:
        name: of its folder.
        title: of the page: the question that the table answers.
        setup: a sentence or two on what its rows are.
        rows: in the order of the page.
        comparisons: of its rows.
        columns: of the page, by their names in `experiments.columns`; what they are measured from is measured.
        published_column: what `Row.published` of its rows is, as the head of that column; "" for no such column.
        at: by the name of a scale, what all rows change there of its vocabulary, data, config, training, finetuning.
        remarks: what a reader of the page has to know beside the numbers, by the name of the scale.
    """

    name: str
    title: str
    setup: str
    rows: list[Row]
    comparisons: list[Comparison]
    columns: Sequence[str] = USUAL
    published_column: str = ""
    at: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    remarks: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def has_picture(self) -> bool:
        """Whether there are rows to see beside each other."""
        return len(self.rows) > 1

    @classmethod
    def read(cls, name: str, folder: Path = FOLDER) -> Self:
        """Reads a table from `tables/NAME/table.json`, and each of its rows from a file of its name beside it.

        >>> Table.read("depth").rows[0].name
        'plain'

        Raises:
            UserError: there is none of that name, or a file says what no table has.
        """
        path = folder / "tables" / name / "table.json"
        values = _read(path, "table", name, folder)
        rows = [_read_row(path.with_name(f"{row}.json"), folder) for row in values["rows"]]
        comparisons = [_made(Comparison, one, path) for one in values["comparisons"]]
        for column in values.get("columns", USUAL):
            _known_column(column)
        for one in comparisons:
            if missing := {row for side in one.rows() for row in side} - set(values["rows"]):
                raise UserError(f"'{path}' compares '{missing.pop()}', which is none of its rows")
        _check_at(values.get("at", {}), _SCALE_PARTS, path, folder)
        return _made(cls, {"name": name} | values | {"rows": rows, "comparisons": comparisons}, path)

    def scaled(self, scale: Scale) -> Scale:
        """Gives the scale as this table's rows start from it."""
        changed = {part: getattr(scale, part) | values for part, values in self.at.get(scale.name, {}).items()}
        return dataclasses.replace(scale, **changed)


def _read_row(path: Path, folder: Path) -> Row:
    row = _made(Row, {"name": path.stem} | files.read_json(path), path)
    _check_at(row.at, _PARTS, path, folder)
    return row


def _check_at(at: Mapping[str, Mapping[str, Any]], known: Sequence[str], path: Path, folder: Path) -> None:
    for scale in at:
        if scale not in names("scale", folder):
            raise UserError(f"'{path}': '{scale}' is no scale; choose of {', '.join(names('scale', folder))}")
    for part in (part for here in at.values() for part in here):
        if part not in known:
            raise UserError(f"'{path}': '{part}' is none of {', '.join(known)}")


def _known_column(name: str) -> None:
    if name not in COLUMNS:
        raise UserError(f"'{name}' is no column; choose of {', '.join(COLUMNS)}")


def names(kind: str, folder: Path = FOLDER) -> list[str]:
    """Lists the tables or the scales that there are.

    >>> "depth" in names("table"), names("scale")
    (True, ['gpu', 'small', 'tiny'])
    """
    pattern = "tables/*/table.json" if kind == "table" else "scales/*.json"
    return sorted(path.parent.name if kind == "table" else path.stem for path in folder.glob(pattern))


def _read(path: Path, kind: str, name: str, folder: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"there is no {kind} '{name}'; choose one of {', '.join(names(kind, folder))}")
    return files.read_json(path)


def _made(kind: type, values: Mapping[str, Any], where: str | Path) -> Any:
    """An instance of a dataclass; what is no field of it is met by name."""
    known = {field.name for field in dataclasses.fields(kind)}
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
            raise UserError(f"{where}: unknown setting '{name}'; did you mean '{near}'?")
    return kind(**values)
