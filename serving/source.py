"""What is to be exported: a model, with the tokenizer and the description of its task that lie beside it."""

import dataclasses
from pathlib import Path
from typing import Any

import keras

from albert_tf.checkpoints.formats import detect, load
from albert_tf.training.model_folder import load_model_folder
from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.tokenizer import Tokenizer, load_tokenizer

# Where published checkpoints keep their vocabulary.
_VOCABULARIES = ("spiece.model", "30k-clean.model", "vocab.txt", "assets/tokenizer/vocabulary.spm")


@dataclasses.dataclass(frozen=True)
class Source:
    """task: what fine-tuning wrote of it (see `ServableOptions.task`), with its "metrics"; {} where nothing did."""

    model: keras.Model
    tokenizer: Tokenizer | None
    task: dict[str, Any]


def load_source(path: str, tokenizer: str = "", lower_case: bool = True) -> Source:
    """Loads a folder that training wrote, a .keras file, or a published checkpoint in any format that converts.

    Args:
        tokenizer: a vocabulary to use in place of the one beside the model.
        lower_case: as that vocabulary, or a published one, was made.

    Raises:
        UserError: there is no model, it is damaged, or tokenizer and model do not belong together.
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    ours = Path(path).suffix == ".keras" or (folder / "model.keras").is_file() or not _is_checkpoint(path)
    if ours:
        model, found = load_model_folder(path)
    else:
        model, found = load(path), _published_tokenizer(folder, lower_case)
    if tokenizer:
        found = load_tokenizer(tokenizer, lower_case)
    _check_sizes(model, found, tokenizer or str(folder))
    return Source(model, found, _task(folder))


def _is_checkpoint(path: str) -> bool:
    try:
        detect(path)
    except UserError:
        return False
    return True


def _published_tokenizer(folder: Path, lower_case: bool) -> Tokenizer | None:
    path = next((folder / name for name in _VOCABULARIES if (folder / name).is_file()), None)
    return None if path is None else load_tokenizer(path, lower_case)


def _check_sizes(model: keras.Model, tokenizer: Tokenizer | None, where: str) -> None:
    size = getattr(model, "encoder", model).config.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > size:
        raise UserError(
            f"the tokenizer of '{where}' has {tokenizer.vocab_size} pieces, the model only {size}; "
            "they do not belong together"
        )


def _task(folder: Path) -> dict[str, Any]:
    """task.json, or the names of the classes from HuggingFace's configuration."""
    if (folder / "task.json").is_file():
        return files.read_json(folder / "task.json")
    if (folder / "config.json").is_file():
        names = files.read_json(folder / "config.json").get("id2label")
        if names:
            return {"labels": [names[number] for number in sorted(names, key=int)]}
    return {}
