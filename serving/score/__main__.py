"""Runs an exported model, or one on a server, on files of rows, and writes the answers in order.

python -m serving.score --model=models/sst2 --input='rows/*.jsonl' --output_dir=scores
python -m serving.score --target=127.0.0.1:8500 --model=sst2 --input='rows/*.jsonl' --output_dir=scores
"""

from dataclasses import dataclass

from serving.client.settings import TLS_FLAGS, ConnectionSettings
from serving.client.tasks import DEFAULT, WITH_OPTIONS
from serving.score.job import score
from serving.score.models import ModelSource
from serving.score.tables import FORMATS
from tfrecords.base.errors import refuse
from tfrecords.base.machine.cpu import cores
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting
from tfrecords.building.runners import RUNNERS


@dataclass(frozen=True, kw_only=True)
class ScoringSettings(ConnectionSettings):
    """The command's flags."""

    model: str = setting(help="folder of an export that takes text, or of its versions; with --target the model's name")
    target: str = setting("", help="HOST:PORT of a model server's gRPC port; empty: the model is loaded here")
    version: int | None = setting(None, help="version of a model behind --target; left out: the newest", at_least=1)
    signature: str = setting("serving_default", help="signature to call")
    prompt_name: str = setting(
        "", help="name of the prompt to put before each text, from those of the exported model; empty: its default"
    )
    truncate_left: bool = setting(False, help="cut texts that are too long at the beginning")
    input: str = setting(
        help="comma-separated globs of tables (.csv, .tsv, .jsonl, .parquet), or of plain text with a text a line"
    )
    output_dir: str = setting(help="folder for one table per file, bad_rows.jsonl and manifest.json")
    fields: str = setting(
        "",
        help="columns that hold the model's inputs, comma-separated; empty: the inputs' names, or for one text a "
        "column called review, sentence or the like",
    )
    outputs: str = setting("", help="outputs to write, comma-separated; empty: the usual ones of the model's kind")
    keep: str = setting("", help="columns of the rows to copy into the answers, such as id, comma-separated")
    format: str = setting("jsonl", help="format of the tables; parquet needs pyarrow", choices=FORMATS)
    max_batch_tokens: int = setting(
        2048, help="largest number of tokens in a batch, estimated from the texts' lengths", at_least=1
    )
    workers: int = setting(
        1, help="number of processes, each with its own copy of the model; a single one uses all cores", at_least=1
    )
    runner: str = setting("local", help="local: processes here; ray: the cluster of RAY_ADDRESS", choices=RUNNERS)
    timeout_s: float = setting(300.0, help="seconds that the server may take for a batch", above=0)
    overwrite: bool = setting(False, help="replace answers that a job with other flags or files left there")


def main(settings: ScoringSettings) -> None:
    """Scores the files."""
    options = {"prompt_name": settings.prompt_name, "truncate_left": settings.truncate_left}
    given, asked = settings.given(TLS_FLAGS), any(options.values())
    refuse({
        f"{given} is for a model behind --target; leave it out": given and not settings.target,
        "--version is for a model behind --target; of a folder give the version's: --model=FOLDER/3":
            settings.version and not settings.target,
        "--prompt_name and --truncate_left are for the signature serving_default; leave out --signature":
            asked and settings.signature != DEFAULT,
    })  # fmt: skip
    ray = settings.runner == "ray"
    source = ModelSource(
        settings.model,
        settings.connection() if settings.target else "",
        settings.version,
        WITH_OPTIONS if asked else settings.signature,
        # Ray lends a task one core.
        threads=1 if ray else 0 if settings.workers == 1 else max(1, cores() // settings.workers),
        timeout_s=settings.timeout_s,
        options=tuple(options.items()) if asked else (),
    )
    score(
        settings.input,
        settings.output_dir,
        source,
        fields=_names(settings.fields),
        outputs=_names(settings.outputs),
        keep=_names(settings.keep),
        format=settings.format,
        max_batch_tokens=settings.max_batch_tokens,
        workers=settings.workers,
        runner=settings.runner,
        overwrite=settings.overwrite,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def run() -> None:
    """Runs the command."""
    run_main(main, ScoringSettings)


if __name__ == "__main__":
    run()
