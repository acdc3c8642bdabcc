"""Saves and describes loaded models."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from albert_tf.checkpoints.formats import save_keras
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.loading.model_files import MODEL_FILE, TASK_FILE
from tfrecords.base import files
from tfrecords.base.errors import UserError, check_truths
from tfrecords.tokenizers.base import DESCRIPTION_FILE

if TYPE_CHECKING:
    from albert_tf.loaded import Loaded

_CARD = "README.md"
# A line of every card that `save` writes.
_FRONT = "library_name: albert-tf"
# No longer true of a model that was trained since.
_MEASURED = ("metrics", "distilled_from", "calibration")


def save_folder(loaded: "Loaded", folder: str | os.PathLike, overwrite: bool) -> Path:
    """Implements `Loaded.save`."""
    check_truths(overwrite=overwrite)
    folder = files.folder_path(folder)
    if folder.is_file():
        raise UserError(f"'{folder}' is a file; name a folder")
    has_content = folder.is_dir() and any(folder.iterdir())
    if has_content and not overwrite:
        raise UserError(f"the folder '{folder}' is not empty; choose another, or replace its model by overwrite=True")
    if has_content and (others := _others(folder)):
        raise UserError(f"the folder '{folder}' holds '{others[0]}', which save did not write; choose another folder")
    # Resolves links, and names such as ".", whose folder could not be replaced.
    place = folder.resolve()
    if Path.cwd().is_relative_to(place):
        raise UserError(f"this process works in the folder '{folder}', which save would replace; name a folder in it")
    parent = files.make_output_dir(place.parent)
    written, former = (parent / f".{place.name}.{os.getpid()}.{part}" for part in ("partial", "former"))
    try:
        written.mkdir()
        _write(loaded, written)
        _replace(place, written, former if has_content else None)
    finally:
        shutil.rmtree(written, ignore_errors=True)
    return folder


def _replace(place: Path, written: Path, former: Path | None) -> None:
    try:
        if former is not None:
            os.replace(place, former)
        try:
            os.replace(written, place)
        except BaseException:
            if former is not None:
                os.replace(former, place)
            raise
    except OSError as error:
        raise UserError(f"cannot write the folder '{place}': {error.strerror}; choose another") from error
    if former is not None:
        shutil.rmtree(former, ignore_errors=True)


def _others(folder: Path) -> list[str]:
    own = {MODEL_FILE, TASK_FILE}
    if (card := folder / _CARD).is_file() and _FRONT in card.read_text(encoding="utf-8", errors="replace"):
        own.add(_CARD)
    if description := files.read_object(folder / DESCRIPTION_FILE):
        own |= {DESCRIPTION_FILE, str(description.get("vocabulary"))}
    return sorted({path.name for path in folder.iterdir()} - own)


def _write(loaded: "Loaded", folder: Path) -> None:
    save_keras(loaded.model, folder / MODEL_FILE, optimizer=False)
    if loaded.tokenizer is not None:
        loaded.tokenizer.save(folder)
    if task := task_of(loaded):
        files.write_json(folder / TASK_FILE, task)
    (folder / _CARD).write_text(_card(loaded, task), encoding="utf-8")


def task_of(loaded: "Loaded") -> dict[str, Any]:
    """Returns the task with the model's labels, and without metrics if the model was trained after loading."""
    task = dict(loaded.task)
    if labels := getattr(loaded.model, "labels", None):
        task["labels"] = list(labels)
    if is_trained(loaded.model):
        task = {name: value for name, value in task.items() if name not in _MEASURED}
    return task


def is_trained(model: keras.Model) -> bool:
    """Returns whether a model was trained since it was made or loaded."""
    optimizer = getattr(model, "optimizer", None)
    return optimizer is not None and int(keras.ops.convert_to_numpy(optimizer.iterations)) > 0


def describe(loaded: "Loaded") -> str:
    """Returns a few lines that describe a loaded model."""
    source = f"'{loaded.source}'" if loaded.source else "in memory"
    return "\n".join([f"Loaded {source}", *(f"  {name:10} {value}" for name, value in _facts(loaded).items())])


def _facts(loaded: "Loaded") -> dict[str, str]:
    model, tokenizer, config = loaded.model, loaded.tokenizer, encoder_of(loaded.model).config
    layers = f"{config.num_hidden_layers} layers of {config.hidden_size}"
    facts = {"model": f"{type(model).__name__}, {layers}, {model.count_params():,} parameters"}
    if hasattr(model, "dimensions"):
        facts["vectors"] = f"{model.dimensions} numbers, pooling {model.pooling}"
    if hasattr(model, "num_classes"):
        names = model.labels or [f"{model.num_classes} classes without names"]
        facts["labels"] = ", ".join(names[:8]) + (f", ... ({len(names)})" if len(names) > 8 else "")
    if tokenizer is None:
        facts["tokenizer"] = "none"
    else:
        case = "lower case" if tokenizer.lower_case else "keeps case"
        facts["tokenizer"] = f"{tokenizer.kind}, {tokenizer.vocab_size:,} pieces, {case}"
    length = min(loaded.task.get("max_seq_length") or config.max_seq_length, config.max_seq_length)
    facts["rows"] = f"up to {length} tokens"
    if loaded.task.get("metrics") and not is_trained(model):
        facts["metrics"] = ", ".join(f"{name} {value:.4g}" for name, value in loaded.task["metrics"].items())
    return facts


def _card(loaded: "Loaded", task: dict[str, Any]) -> str:
    base = loaded.source.split("@")[0]
    front = [_FRONT, *([f"base_model: {base}"] if "/" in base and not Path(base).exists() else [])]
    lines = ["---", *front, "---", "", "# A model of albert-tf", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in _facts(loaded).items()]
    lines += [f"| from | `{loaded.source}` |"] if loaded.source else []
    lines += [f"| inputs | {', '.join(task['inputs'])} |"] if task.get("inputs") else []
    call = "encode" if hasattr(loaded.model, "dimensions") else "predict"
    usage = ["import albert_tf", "", 'loaded = albert_tf.load("THIS FOLDER")', f'loaded.{call}(["a text"])']
    command = "python -m serving.export --model=THIS_FOLDER --output_dir=models/NAME"
    return "\n".join([*lines, "", "```python", *usage, "```", "", f"For TensorFlow Serving: `{command}`", ""])
