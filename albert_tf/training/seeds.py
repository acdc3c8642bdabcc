"""Several runs that differ in their seed, summed up."""

import shutil
import statistics
from pathlib import Path

from albert_tf.training import model_folder, resumable
from tfrecords.base import files


def summarize(output_dir: Path, folders: dict[int, Path], main_metric: str) -> dict:
    """Writes `summary.json`, and the model of the best seed, into the folder above those of the seeds.

    Returns:
        The summary: for each metric of the best checkpoints its `values` in the order of `seeds`, `median`, `min`,
        `max` and, of two or more, `standard_deviation`.
    """
    tasks = {seed: model_folder.load_task(folder) for seed, folder in folders.items()}
    metrics = {
        name: _spread([task["metrics"][name] for task in tasks.values()])
        for name in next(iter(tasks.values()))["metrics"]
    }
    main = main_metric.removeprefix("dev_")
    # Without evaluation files no seed is better than another.
    best = max(tasks, key=lambda seed: tasks[seed]["metrics"].get(main, 0.0))
    summary = {"main_metric": main, "seeds": list(tasks), "best_seed": best, "metrics": metrics}
    for path in sorted(folders[best].iterdir()):
        if path.is_file() and path.name not in (*resumable.NAMES, "history.csv", "run.json"):
            with files.replacing(output_dir / path.name) as temporary:
                shutil.copyfile(path, temporary)
    files.write_json(output_dir / "summary.json", summary)
    for name, figures in metrics.items():
        print(
            f"{name}: median {figures['median']:.4g} of {len(tasks)} seeds, {figures['min']:.4g}-{figures['max']:.4g}"
        )
    return summary


def _spread(values: list[float]) -> dict:
    spread = {"values": values, "median": statistics.median(values), "min": min(values), "max": max(values)}
    return spread | ({"standard_deviation": statistics.stdev(values)} if len(values) > 1 else {})
