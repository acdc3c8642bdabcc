"""What is to be exported: a model, with the tokenizer and the description of its task that lie beside it."""

import dataclasses
from pathlib import Path
from typing import Any

import keras

from albert_tf.checkpoints.formats import detect, load
from albert_tf.training.model_folder import load_task
from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.tokenizer import TOKENIZER_FILE, Tokenizer, load_tokenizer

# Where published checkpoints keep their vocabulary.
_VOCABULARIES = ("spiece.model", "30k-clean.model", "vocab.txt", "assets/tokenizer/vocabulary.spm")


@dataclasses.dataclass(frozen=True)
class Source:
    """task: what fine-tuning wrote of it (see `ServableOptions.task`), with its "metrics"; {} where nothing did."""

    model: keras.Model
    tokenizer: Tokenizer | None
    task: dict[str, Any]


def load_source(path: str, tokenizer: str = "", lower_case: bool | None = None) -> Source:
    """Loads a folder that training wrote, a .keras file, or a published checkpoint in any format that converts.

    Args:
        tokenizer: a vocabulary to use in place of the one beside the model.
        lower_case: as that vocabulary, or a published one, was made; None: what the tokenizer_config.json beside it
            says, or else yes.

    Raises:
        UserError: there is no model, it is damaged, or tokenizer and model do not belong together.
    """
    form = detect(path)
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    model = load(path, form)
    found = None
    if tokenizer:
        found = load_tokenizer(tokenizer, _lower_case(Path(tokenizer).parent, lower_case))
    elif form != "keras":
        found = _published_tokenizer(folder, lower_case)
    elif (folder / TOKENIZER_FILE).is_file():
        found = load_tokenizer(folder)
    _check_sizes(model, found, tokenizer or str(folder))
    return Source(model, found, load_task(folder) or _huggingface_task(folder))


def _published_tokenizer(folder: Path, lower_case: bool | None) -> Tokenizer | None:
    path = next((folder / name for name in _VOCABULARIES if (folder / name).is_file()), None)
    return None if path is None else load_tokenizer(path, _lower_case(folder, lower_case))


def _lower_case(folder: Path, said: bool | None) -> bool:
    if said is not None:
        return said
    path = folder / "tokenizer_config.json"
    return bool(files.read_json(path).get("do_lower_case", True)) if path.is_file() else True


def _check_sizes(model: keras.Model, tokenizer: Tokenizer | None, where: str) -> None:
    size = getattr(model, "encoder", model).config.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > size:
        raise UserError(
            f"the tokenizer of '{where}' has {tokenizer.vocab_size} pieces, the model only {size}; "
            "they do not belong together"
        )


def _huggingface_task(folder: Path) -> dict[str, Any]:
    """The names of the classes, where the configuration beside a checkpoint has them."""
    path = folder / "config.json"
    names = files.read_json(path).get("id2label") if path.is_file() else None
    return {"labels": [names[number] for number in sorted(names, key=int)]} if names else {}
