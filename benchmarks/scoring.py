"""What scoring a file costs over the bare SavedModel.

    python -m benchmarks.scoring --model=models/sst2 --text_file=lines.txt --rows=10000

Both answer the same texts, in turns: `serving.score` from file to file, model already loaded; and the SavedModel called
on ideal batches: of all texts together, like lengths beside each other, made before the clock starts.
"""

import contextlib
import io
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import machine_line
from benchmarks.timing import seconds_of
from serving.client.messages import token_batches
from serving.client.tasks import estimated_tokens
from serving.score.job import score
from serving.score.models import ModelSource, open_model, version_folder
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedSettings):
    """The command's flags."""

    model: str = setting(help="a SavedModel of single texts, or the folder of its versions")
    text_file: str = setting(help="texts, one a line; repeated until there are enough")
    rows: int = setting(100_000, help="texts", at_least=1)
    rounds: int = setting(2, help="turns of both", at_least=1)
    max_batch_tokens: int = setting(2048, help="of a batch, in both", at_least=1)


def main(settings: Settings) -> None:
    print(machine_line())
    lines = [line for line in Path(settings.text_file).read_bytes().splitlines() if line.strip()]
    texts = (lines * (settings.rows // len(lines) + 1))[: settings.rows]
    source = ModelSource(str(version_folder(settings.model)))
    model = open_model(source)
    (name,) = model.inputs
    sizes = [estimated_tokens((text,)) for text in texts]
    batches = [
        {name: np.array([texts[row] for row in batch], object)}
        for batch in token_batches(sizes, settings.max_batch_tokens)
    ]
    outputs = tuple(model.outputs)

    def bare() -> None:
        for batch in batches:
            model(batch, outputs)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.txt")
        path.write_bytes(b"\n".join(texts) + b"\n")

        def scored() -> None:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                score(
                    str(path), f"{folder}/out", source, max_batch_tokens=settings.max_batch_tokens, overwrite=True
                )  # fmt: skip
            shutil.rmtree(Path(folder, "out"))

        for batch in batches[:: max(1, len(batches) // 8)]:
            model(batch, outputs)
        rates: dict[str, list[float]] = {"bare": [], "scored": []}
        for number in range(settings.rounds):
            turns = [("bare", bare), ("scored", scored)]
            for what, call in turns if number % 2 == 0 else turns[::-1]:
                rates[what].append(len(texts) / seconds_of(call))
                print(f"{what:7} {rates[what][-1]:10.1f} rows/s", flush=True)
    best = {what: max(found) for what, found in rates.items()}
    print(f"{len(texts):,} rows: scored / bare {best['scored'] / best['bare']:.3f} (asked: at least 0.95)")


if __name__ == "__main__":
    run_main(main, Settings)
