"""Detects, loads and saves all checkpoint formats."""

import os
import zipfile
from pathlib import Path
from typing import Any

import keras
from absl import logging

from albert_tf import checkpoints
from albert_tf.base.model import has_adapters, merge_adapters
from albert_tf.checkpoints.untrusted import check_keras_file
from albert_tf.loading.model_files import MODEL_FILE, detect
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from tfrecords.base.errors import UserError, first_line
from tfrecords.base.files import make_output_dir, replacing, write_json
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.folders.other_files import CLASSES, SENTENCE_FILES
from tfrecords.tokenizers.loading import tokenizer_in


def load(path: str | os.PathLike) -> keras.Model:
    """Loads a model in the format of its files."""
    form = detect(path)
    return load_keras(path) if form == "keras" else getattr(checkpoints, f"load_{form}")(path)


def save(model: keras.Model, path: str | os.PathLike, form: str) -> None:
    """Writes a folder, or a .keras file for `form` "keras"; raises UserError if the format cannot hold the model."""
    if form != "keras":
        used = model
        if isinstance(used, AlbertSentenceEmbedder):
            logging.warning("how texts are pooled has no form there: '%s' holds the encoder alone", path)
            used = used.encoder
        own = {"activation": getattr(used, "activation", "linear"), "multi_label": getattr(used, "multi_label", False)}
        if form != "huggingface" and own != {"activation": "linear", "multi_label": False}:
            logging.warning("what scores pass through (%s) has no form there: '%s' gives logits", own, path)
        getattr(checkpoints, f"save_{form}")(used, path)
        return
    if Path(path).suffix != ".keras":
        raise UserError(f"a Keras model's file must end in .keras, not '{path}'")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_keras(model, path)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}; choose another") from error


def load_keras(path: str | os.PathLike, compile: bool = False) -> keras.Model:
    """Loads a model of this package from a .keras file or a folder with model.keras.

    Without `compile`, the optimizer is not restored, and LoRA adapters are merged. Raises UserError for other files.
    """
    file = Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UserError(f"no Keras model '{file}'; give a .keras file or a folder that training wrote")
    if not zipfile.is_zipfile(file):
        raise UserError(f"'{file}' is not whole: {file.stat().st_size:,} bytes that are no .keras file; copy it again")
    try:
        check_keras_file(file)
        model = keras.saving.load_model(file, compile=compile, safe_mode=True)
    except Exception as error:
        # Keras raises whatever the damaged part does: zip, JSON, HDF5, type and value errors.
        raise UserError(f"cannot read '{file}' as a Keras model: {first_line(error)}") from error
    if not compile and has_adapters(model):
        merge_adapters(model)
    return model


def save_keras(model: keras.Model, path: str | os.PathLike, optimizer: bool = True) -> None:
    """Writes a .keras file atomically.

    The optimizer triples the file's size. Without it, loading makes frozen weights trainable, unless there are
    LoRA adapters.
    """
    if not optimizer:
        bare = model.__class__.from_config(model.get_config())
        bare.set_weights(model.get_weights())
        if not has_adapters(bare):
            bare.trainable = False  # TensorFlow ignores a value that the model has already, whatever its layers have.
            bare.trainable = True
        model = bare
    with replacing(path) as temporary:
        model.save(temporary)


_CLASSES = {"sentencepiece": "AlbertTokenizer", "wordpiece": "BertTokenizer", "bpe": "RobertaTokenizer"}
_BY_FILE = "PreTrainedTokenizerFast"
_SPECIAL = {"cls": "cls_id", "bos": "cls_id", "sep": "sep_id", "eos": "sep_id"} | {
    name: f"{name}_id" for name in ("pad", "unk", "mask")
}


def check_tokenizer_fits(tokenizer: Tokenizer, path: str | os.PathLike, form: str) -> bool:
    """Returns whether the model's folder already has this tokenizer; raises UserError if it has another."""
    folder = Path(path).parent if form == "keras" else Path(path)
    present = tokenizer_in(folder) if folder.is_dir() else None
    if present is not None and present.sha256 != tokenizer.sha256:
        raise UserError(f"'{folder}' holds another model's tokenizer; choose another folder for '{path}'")
    return present is not None


def save_tokenizer(tokenizer: Tokenizer, path: str | os.PathLike, form: str) -> None:
    """Writes a tokenizer for the model at `path`, in the files of the format `form`."""
    folder = make_output_dir(Path(path).parent if form == "keras" else path)
    if check_tokenizer_fits(tokenizer, path, form):
        return
    if form == "keras":
        tokenizer.save(folder)
        return
    contents = tokenizer.published_files()
    for name, content in contents.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    write_json(folder / "tokenizer_config.json", _tokenizer_config(tokenizer, "tokenizer.json" in contents))
    if tokenizer.lowers_first:
        write_json(folder / SENTENCE_FILES[0], {"do_lower_case": True})


def _tokenizer_config(tokenizer: Tokenizer, in_file: bool) -> dict[str, Any]:
    name = _CLASSES[tokenizer.kind]
    if tokenizer.kind == "sentencepiece":
        of_first = {one.fairseq[0]: f"{name}Tokenizer" for name, one in CLASSES.items() if one.fairseq}
        name = of_first.get(tokenizer.pieces[0], name)
        name = "XLNetTokenizer" if tokenizer.pieces[tokenizer.cls_id] == "<cls>" else name
    values: dict[str, Any] = {"tokenizer_class": name}
    if tokenizer.one_segment:
        values["model_input_names"] = ["input_ids", "attention_mask"]
    if in_file:
        # Few tokenizers are of this class.
        from tfrecords.tokenizers.bytes.library_bpe import LibraryBPETokenizer

        # For BERT's class, transformers builds the steps itself and ignores the file's.
        named = {f"{name}_token": tokenizer.pieces[getattr(tokenizer, own)] for name, own in _SPECIAL.items()}
        # RoBERTa's, too, in another form than its own.
        is_built = tokenizer.kind == "wordpiece" or tokenizer.separators_between == 1
        is_built |= isinstance(tokenizer, LibraryBPETokenizer)
        return values | named | ({"tokenizer_class": _BY_FILE} if is_built else {})
    lower, keep = tokenizer.lower_case, tokenizer.keep_accents
    accents = {"keep_accents": keep} if tokenizer.kind == "sentencepiece" else {"strip_accents": lower and not keep}
    return values | {"do_lower_case": lower} | accents
