"""Runs a table and writes its page: `python -m experiments.run TABLE --output_dir=out --corpus='text/*.jsonl.gz'`.

What is there already is kept: the same command goes on after a kill, and does only what is missing. A table is a
folder of settings files in experiments/tables, a file for each row; experiments/scales has the sizes.
"""

import dataclasses
import secrets
import sys
from pathlib import Path

from experiments.settings import TableSettings
from tfrecords.base import files
from tfrecords.base.cpu import train_by_onednn
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main


def main(settings: TableSettings, settings_folder: Path = Path(__file__).parent, backend: str = "") -> None:
    """Does what the flags ask for, with the tables and scales of a folder, under a backend or the scale's own."""
    if settings.dryrun:
        return _walk(settings, settings_folder)
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

    import keras

    from experiments.session import Session

    session = Session(settings, settings_folder)
    files.make_output_dir(session.folder)
    backend = backend or session.scale.backend
    if keras.backend.backend() != backend:
        raise UserError(f"scale {settings.scale} is for KERAS_BACKEND={backend}")
    stages = {
        "train": session.train, "measure": session.measure, "time": session.time, "page": session.write_page
    }  # fmt: skip
    chosen = ["page"] if settings.results else settings.stages.split(",")
    for stage in chosen:
        if stage not in stages:
            raise UserError(f"--stages: '{stage}' is none of {', '.join(stages)}")
    for stage in chosen:
        stages[stage]()
    if session.failed:
        raise UserError(f"without result: {'; '.join(session.failed)}; the same command tries again")


def _walk(settings: TableSettings, settings_folder: Path) -> None:
    """--dryrun: all at scale tiny with one seed, under the scale's backend, twice, in a folder that is removed."""
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

    from experiments.tables import Scale

    backend = Scale.read(settings.scale, settings_folder).backend
    # A name of its own: another dry run may be at work there, or may have been killed.
    with files.trial_folder(settings.output_dir, f".dryrun-{secrets.token_hex(4)}") as folder:
        small = dataclasses.replace(
            settings, output_dir=str(folder), scale="tiny", seeds=1, publish=False, dryrun=False
        )
        main(small, settings_folder, backend)
        main(small, settings_folder, backend)  # Does nothing again.
        print("dry run: built examples, trained, measured and wrote the page; nothing is kept")


def run() -> None:
    """Runs the command; the table may stand first, without --table=."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--table={sys.argv[1]}"
    train_by_onednn()
    run_main(main, TableSettings)


if __name__ == "__main__":
    run()
