"""Makes every fault of a list happen to the embedded server, the gateway and scoring, and prints what survived.

    python -m scripts.faults                 all rows: a quarter of an hour on two quiet cores
    python -m scripts.faults slow-clients    these rows
    python -m scripts.faults --list          what each does, and what must hold

Some faults need root (a small disk) or a package of the tests (certificates); a row that cannot be done says so. The
status is 1 where a row did not survive. --folder keeps the logs.
"""

import contextlib
import resource
import tempfile
import time
from pathlib import Path

from scripts import command
from scripts.faults import disks, network, processes, versions  # noqa: F401
from scripts.faults.rows import ROWS
from scripts.faults.stage import Failed, Impossible, Patience, Stage, export
from tfrecords.base.errors import first_line


def main() -> int:
    """Returns the status of the command."""
    parser = command.parser(__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--list", action="store_true", help="print the rows, and run none")
    parser.add_argument("--folder", type=Path, help="where logs stay; left out: nowhere")
    parser.add_argument("--patience", type=float, default=Patience.seconds, help="seconds that anything may take (60)")
    arguments = parser.parse_args()
    Patience.seconds = arguments.patience
    if unknown := sorted(set(arguments.rows) - set(ROWS)):
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    names = arguments.rows or list(ROWS)
    if arguments.list:
        for name in names:
            print(f"{name:22} {ROWS[name].done}: {ROWS[name].holds}")
        return 0
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        results = run(names, folder)
    print(f"\n| {'fault':22} | {'survived':9} | seen |\n|---|---|---|")
    for name, (survived, seen, _) in results.items():
        print(f"| {name:22} | {survived:9} | {ROWS[name].done}: {seen} |")
    return int(any(survived == "no" for survived, _, _ in results.values()))


def run(names: list[str], folder: Path) -> dict[str, tuple[str, str, float]]:
    """Runs rows; returns for each "yes", "no" or "not done", what was seen, and the seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder.mkdir(parents=True, exist_ok=True)
    models = folder / "models"
    if not models.exists():
        export(models, 1)
    results = {}
    for name in names:
        begin, place = time.monotonic(), folder / name
        place.mkdir(exist_ok=True)
        try:
            with Stage(place, models) as stage:
                survived, seen = "yes", ROWS[name].run(stage)
        except Impossible as error:
            survived, seen = "not done", str(error)
        except Failed as error:
            survived, seen = "no", str(error)
        except Exception as error:
            survived, seen = "no", f"{type(error).__name__}: {first_line(error)}"
        results[name] = survived, seen, time.monotonic() - begin
        print(f"{name}: {survived} ({results[name][2]:.0f} s): {seen}", flush=True)
    return results


if __name__ == "__main__":
    command.run(main)
