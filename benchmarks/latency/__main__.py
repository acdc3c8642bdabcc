"""Writes the project's latency report, docs/results/latency.md with its plot and its data, on this machine.

python -m benchmarks.latency [--work_dir=FOLDER]

Each export's figures are kept in the work folder: a run that was stopped goes on where it was, and what was measured
with other settings, on another machine or by other versions is measured again. `--seconds=0` only writes the page again
from the figures that are there. Half an hour on 2 cores; nothing else should run meanwhile.
"""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

from benchmarks.latency.page import EXPORTS, write_page
from benchmarks.texts import topics_and_vocabulary
from serving.benchmark.report import environment
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting


@dataclasses.dataclass(frozen=True)
class LatencySettings:
    work_dir: str = setting("latency", help="folder for models, exports and figures; kept for the next run")
    page: str = setting("docs/results/latency.md", help="the report; its plot and data go into a folder of its name")
    models: str = setting(
        "bert_base_uncased,albert_tiny,albert_base_v2,albert_large_v2", help="published configurations, by commas"
    )
    lengths: str = setting("12,32,64,128,256,384,512", help="tokens of a request; 128 must be among them")
    seconds: float = setting(3.0, help="seconds measured a point; 0 writes the page from the figures that are there")


def measured(settings: LatencySettings) -> list[dict]:
    """Returns the figures of every model and variant; measures those that are not in the work folder yet."""
    work = files.make_output_dir(settings.work_dir)
    text, vocabulary = topics_and_vocabulary(work, 4000)
    found = []
    # Imported late: the load generator's processes import this module too, and need no TensorFlow.
    import tfrecords.base.machine.quiet_tensorflow  # noqa: F401  (first of all)
    from benchmarks.latency.measure import export_model, make_model, measure

    for name in settings.models.split(","):
        for variant in EXPORTS:
            folder = work / name / variant.replace(" ", "_")
            kept = folder / "figures.json"
            if not settings.seconds and not kept.is_file():
                raise UserError(f"no figures of {name}, {variant} in '{work}'; run without --seconds=0")
            if settings.seconds and not (kept.is_file() and is_current(files.read_json(kept), settings)):
                print(f"{name}, {variant}", flush=True)
                shutil.rmtree(folder / "export", ignore_errors=True)  # Whatever version wrote it.
                version = export_model(make_model(name, work / name / "model"), variant, folder / "export")
                figures = measure(name, version, settings.lengths, settings.seconds, text, vocabulary)
                figures["environment"]["commit"] = _commit()
                files.write_json(kept, figures | {"variant": variant, "settings": _asked(settings)})
            found.append(files.read_json(kept))
    if len({_where(one["environment"]) for one in found}) > 1:
        raise UserError(f"the figures in '{work}' are of several machines or versions; run without --seconds=0")
    return found


def is_current(figures: dict, settings: LatencySettings) -> bool:
    """Returns whether figures were measured with these settings, on this machine, by these versions."""
    return figures["settings"] == _asked(settings) and _where(figures["environment"]) == _where(environment())


def _asked(settings: LatencySettings) -> dict:
    return {"lengths": settings.lengths, "seconds": settings.seconds}


def _commit() -> str:
    """Returns the commit that is measured."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip() or "unknown"


def _where(here: dict) -> str:
    return json.dumps([here[name] for name in ("cpu", "usable_cores", "python", "packages")], sort_keys=True)


def main(settings: LatencySettings) -> None:
    if "128" not in settings.lengths.split(","):
        raise UserError(f"--lengths={settings.lengths} must have 128 among them: the summary stands on it")
    write_page(measured(settings), Path(settings.page))
    print(f"wrote {settings.page}")


if __name__ == "__main__":
    run_main(main, LatencySettings)
