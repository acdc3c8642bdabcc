"""Pre-trains a model on training examples.

python -m albert_tf.run_pretraining --config=albert_tiny --train_data='data/train-*' --output_dir=run
python -m albert_tf.run_pretraining --init_from=albert_base --train_data='data/train-*' --eval_data='data/eval-*' \\
    --output_dir=run --num_train_steps=20000
"""

import csv
from pathlib import Path

from albert_tf.config import read_config
from albert_tf.loading.hub import check_model
from albert_tf.loading.model_files import MODEL_FILE
from albert_tf.training.pretraining_settings import PretrainingSettings
from tfrecords.base.machine.cpu import train_by_onednn
from tfrecords.base.script import run_main, say_next, start_tensorflow
from tfrecords.reading.manifest import read_manifest
from tfrecords.tokenizers.folders.folder_files import check_tokenizer


def main(settings: PretrainingSettings) -> None:
    """Pre-trains a model."""
    if settings.init_from:
        check_model(settings.init_from, settings.allow_pickle)
    if settings.tokenizer:
        check_tokenizer(settings.tokenizer)
    if settings.config:
        read_config(settings.config)
    for patterns in filter(None, (settings.train_data, settings.second_train_data)):
        read_manifest(patterns)
    start_tensorflow()
    from albert_tf.training.loop.devices import make_devices
    from albert_tf.training.pretraining import pretrain, try_all_paths

    if settings.dryrun:
        try_all_paths(settings)
    else:
        devices = make_devices(settings.strategy)
        folder = pretrain(settings, devices)
        if devices.is_chief:
            _say_end(folder, settings.second_from_step)


def _say_end(folder: Path, second_from_step: int) -> None:
    if not (folder / MODEL_FILE).is_file():
        return  # Stopped before the first evaluation.
    with open(folder / "history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # Each phase has a best model; the newest phase's is saved.
    first = second_from_step if int(rows[-1]["step"]) > second_from_step else 0
    rows = [row for row in rows if row.get("val_loss") and int(row["step"]) > first]
    best = min(rows, key=lambda row: float(row["val_loss"]), default=None)
    figure = (
        f"held-out loss {float(best['val_loss']):.4f} at step {best['step']}, the best"
        if best
        else "nothing was measured, as there was no --eval_data; python -m albert_tf.run_evaluation "
        f"--model={folder} --train_data=... --eval_data=... measures it"
    )
    print(f"wrote {folder / MODEL_FILE}: {figure}")
    say_next(
        f"python -m albert_tf.run_finetuning --init_from={folder} --task=classification --data_dir=... --output_dir=..."
    )


def run() -> None:
    """Runs the command."""
    train_by_onednn()
    run_main(main, PretrainingSettings)


if __name__ == "__main__":
    run()
