"""Finds hard negatives: passages that a model ranks high for an anchor but that are not its positives.

The command writes rows for `run_finetuning --task=pairs` with columns negative_1, negative_2 and so on. It keeps
the negatives that are there.

python -m albert_tf.mine_negatives --model=minilm --data_file=pairs.csv --output_file=mined.csv
python -m albert_tf.mine_negatives --model=run --data_file=pairs.csv --passages=corpus.jsonl --output_file=mined.csv
"""

import dataclasses
import shlex
from pathlib import Path
from typing import ClassVar

from albert_tf.loading.hub import check_model
from albert_tf.tasks.tables.pair_file import open_pairs
from albert_tf.trainer_settings import Applied, Columns, DataFile
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_next, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.base.text_files import ending

_ENDINGS = (".csv", ".tsv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passages(CheckedSettings, only="passages"):
    """Settings of a table of passages."""

    passages: str = setting("", help="table of the passages to choose from; empty: all positives of --data_file")
    passage_column: str = setting("", help="column of the passages; empty: passage, text or the like")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiningSettings(Passages, DataFile, Columns, Applied, defaults={"data_file": dataclasses.MISSING}):
    """The command's flags."""

    groups: ClassVar[dict[str, str]] = {
        "Your data": "data_file text_column second_text_column encoding passages passage_column",
        "Which passages": "num_negatives relative_margin range_max",
    }

    output_file: str = setting(
        help="table to write: .csv or .tsv; a killed run leaves a hidden folder next to it, from which it goes on"
    )
    num_negatives: int = setting(3, help="negatives of a row; rows with fewer are left out", at_least=1)
    relative_margin: float = setting(
        0.05,
        help="a negative's cosine must be lower than the positive's by this share of it, since a better passage may "
        "well be an answer too (0.05: NV-Retriever, arXiv:2407.15831)",
        at_least=0,
        below=1,
    )
    range_max: int = setting(
        100,
        help="number of the most similar passages that are candidates, besides the anchor's own; those above the "
        "margin count too",
        at_least="num_negatives",
    )

    def __post_init__(self):
        super().__post_init__()
        if ending(Path(self.output_file)) not in _ENDINGS:
            raise UserError(f"--output_file={self.output_file} must end in {' or '.join(_ENDINGS)}")
        for flag in ("data_file", "passages"):
            if (given := getattr(self, flag)) and Path(given).resolve() == Path(self.output_file).resolve():
                raise UserError(f"--output_file={self.output_file} is --{flag}, which it would replace; give another")


def main(settings: MiningSettings) -> None:
    """Mines hard negatives."""
    check_model(settings.model, settings.allow_pickle)
    pairs = open_pairs(settings)
    if pairs.score:
        raise UserError(
            f"'{settings.data_file}' has the scores '{pairs.score}', which mining does not read: each row is taken for "
            "a pair that belongs together; keep the rows that do and remove the column"
        )
    print(pairs)
    start_tensorflow()
    from albert_tf.embeddings.mining import mine

    mine(settings, pairs)
    # Never the folder of the model itself.
    name = Path(settings.model).resolve().name.removesuffix(".keras")
    flags = {"data_file": settings.output_file, "init_from": settings.model, "output_dir": f"{name}-mined"}
    flags |= {flag: given for flag in ("text_column", "second_text_column") if (given := getattr(settings, flag))}
    given = " ".join(f"--{flag}={shlex.quote(value)}" for flag, value in flags.items())
    say_next(f"python -m albert_tf.run_finetuning --task=pairs {given}")


def run() -> None:
    """Runs the command."""
    run_main(main, MiningSettings)


if __name__ == "__main__":
    run()
