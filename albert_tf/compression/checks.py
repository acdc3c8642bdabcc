import dataclasses
from pathlib import Path
from typing import Any

from albert_tf.compression.settings import CompressSettings
from albert_tf.compression.task_phase import TEXT_PHASE
from albert_tf.model_files import MODEL_FILE
from albert_tf.training import run_folder
from tfrecords.base.errors import UserError

# The measurements before both phases.
TABLE_FILE = "table.json"


def check_folder(settings: CompressSettings) -> None:
    """Raises UserError if a model in the output folder would be overwritten."""
    folder, model = Path(settings.output_dir).resolve(), Path(settings.model).resolve()
    if folder in (model, model.parent if model.is_file() else model):
        raise UserError(f"--output_dir={settings.output_dir} is the folder of --model, which would be lost")
    is_full = any((folder / name).is_file() for name in (MODEL_FILE, run_folder.RUN_FILE))
    if is_full and not (folder / TABLE_FILE).is_file():
        raise UserError(f"'{settings.output_dir}' holds another model, which would be lost; give another --output_dir")
    if not settings.num_train_steps and (folder / TEXT_PHASE / run_folder.RUN_FILE).is_file():
        raise UserError(
            f"'{settings.output_dir}' holds a model that was trained, which --num_train_steps=0 would replace; give "
            "another --output_dir"
        )


def check_same_task(settings: CompressSettings, trained: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raises UserError if the task of the data, `asked`, differs from the model's, `trained`."""
    # Columns may have other names, so only their number is compared.
    trained, asked = (one | {"texts a row": len(one.get("inputs", asked["inputs"]))} for one in (trained, asked))
    for name in ("kind", "labels", "texts a row"):
        if trained.get(name, asked[name]) != asked[name]:
            raise UserError(
                f"--model={settings.model} was fine-tuned on {settings.task} of {name} {trained[name]}, and "
                f"--data_dir={settings.data_dir} has {name} {asked[name]}; give the data it was fine-tuned on, and its "
                "columns' flags"
            )


def check_no_task_phase(settings: CompressSettings) -> None:
    """Raises UserError if flags of the task phase (--task_...) are given."""
    names = (field.name for field in dataclasses.fields(settings) if field.name.startswith("task_"))
    if given := settings.given(names):
        raise UserError(
            f"{given} is of a second phase, which only a model that run_finetuning or compress made for "
            f"--task={settings.task} has, after --num_train_steps above 0; leave it out"
        )
