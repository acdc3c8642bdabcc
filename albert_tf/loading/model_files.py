"""Recognizes model files."""

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from albert_tf.config.reading import CONFIG_FILES
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.folders.folder_files import FILES

MODEL_FILE = "model.keras"
# The description of the task that fine-tuning writes.
TASK_FILE = "task.json"
# The suffix of the index of weights in several files.
SHARDS = ".index.json"


# The files of published folders that are read, by what they are.
READ = {
    "weights": """model.safetensors model-*.safetensors pytorch_model.bin pytorch_model-*.bin *.index.json
        model.weights.h5 task.weights.h5 *.index *.data-* checkpoint model.keras""",
    "configuration": f"{CONFIG_FILES} task.json metadata.json",
    "tokenizer": FILES,
    "sentence-transformers": """modules.json router_config.json config_sentence_transformers.json
        sentence_*_config.json""",
}
# Those that change no answer.
WITHOUT_EFFECT = {
    "the same weights for another program": """tf_model*.h5 flax_model*.msgpack rust_model.ot model.onnx *.mlmodel
        model.*.safetensors pytorch_model.*.bin""",
    "of the training that made it": """training_args.bin trainer_state.json optimizer.pt scheduler.pt scaler.pt
        rng_state*.pth *results*.json *results*.csv *results*.txt data_config.json run_data.json *.tfevents.* *_log.csv
        pretraining_settings.json""",
    "of text generation and of other inputs": """generation_config.json preprocessor_config.json chat_template.*""",
    "for people": """README* LICENSE* NOTICE* *.md *.png *.jpg *.pdf *.py *.ipynb *.sh *.html .*""",
    "another form of the vocabulary, or of a checkpoint": """unigram.json tokenizer.model *.vocab graph.pbtxt *.meta""",
}


def unknown_files(folder: Path) -> list[str]:
    """Returns the names of a folder's files that are neither read here nor known to be irrelevant."""
    return unknown_names(sorted(path.name for path in folder.iterdir() if path.is_file()))


def unknown_names(names: Iterable[str]) -> list[str]:
    """Returns those file names that are neither read here nor known to be irrelevant."""
    known = " ".join((*READ.values(), *WITHOUT_EFFECT.values())).split()
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in known)]


_ADAPTER = "adapter_config.json"
# Other files of weights.
_NOT_READ = {
    "model.*.safetensors": "a variant of the weights, in another precision; give that file itself",
    "tf_model*.h5": "transformers' format for TensorFlow; save the model as safetensors",
    "flax_model.msgpack": "transformers' format for Flax; save the model as safetensors",
    "*.onnx": "an ONNX graph; give the folder with the weights that it was made from",
    "onnx/*.onnx": "an ONNX graph; give the folder with the weights that it was made from",
    "saved_model.pb": "an export, which only a server reads; give the folder that it was exported from",
    "*/saved_model.pb": "an export, which only a server reads; give the folder that it was exported from",
    "*.gguf": "a file of llama.cpp; give the folder with the weights that it was made from",
}


def detect(path: str | os.PathLike) -> str:
    """Returns a checkpoint's format, "official", "huggingface", "keras_hub" or "keras", or raises UserError."""
    path = Path(path)
    if path.suffix == ".keras" or (path / MODEL_FILE).is_file():
        return "keras"
    if (path / _ADAPTER).is_file():
        # transformers loads the adapter's base model, whatever weights lie in the folder.
        raise UserError(f"'{path}' holds a PEFT adapter ({_ADAPTER}); merge it into its base model and save that")
    if path.suffix in (".safetensors", ".bin") or path.name.endswith(SHARDS) or weights_file(path).is_file():
        return "huggingface"
    if (path / "model.weights.h5").is_file():
        return "keras_hub"
    for pattern, what in _NOT_READ.items():
        if found := sorted(path.glob(pattern)):
            raise UserError(f"no model at '{path}' that is read here: '{found[0].name}' is {what}")
    if path.suffix == ".index" or Path(f"{path}.index").is_file() or any(path.glob("*.index")):
        return "official"
    if not path.exists():
        raise UserError(
            f"no model at '{path}': there is no such file or folder; give one, or a model of the Hugging Face hub by "
            "its whole name, such as albert/albert-base-v2"
        )
    raise UserError(
        f"no model at '{path}'; expected a .keras file, a TensorFlow checkpoint's prefix, or a folder with"
        f" {MODEL_FILE}, model.safetensors, pytorch_model.bin, model.weights.h5 or one TensorFlow checkpoint"
    )


def weights_file(folder: Path) -> Path:
    """Returns a HuggingFace folder's weights file or, if there are several, their index."""
    whole = ("model.safetensors", "pytorch_model.bin")
    names = [name for one in whole for name in (one, f"{one}{SHARDS}")]
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def shards_of(index: Path) -> dict[str, str]:
    """Returns the file name for each tensor; folders in the index's paths are ignored."""
    places = files.read_object(index).get("weight_map")
    is_map = isinstance(places, dict) and all(isinstance(name, str) for name in places.values())
    if not is_map or any(name.endswith(SHARDS) for name in places.values()):
        raise UserError(f"'{index}' does not say which files hold the weights; copy or download it again")
    return {tensor: Path(name).name for tensor, name in places.items()}


def load_task(path: str | os.PathLike) -> dict[str, Any] | None:
    """Reads task.json in a model's folder, or next to a model's file; returns None without one."""
    path = Path(path)
    file = (path if path.is_dir() else path.parent) / TASK_FILE
    values = files.read_object(file)
    # keras-hub writes the class of its model into a file of the same name.
    if not values or "class_name" in values:
        return None
    for key, (kind, parts) in _TASK.items():
        value = values.get(key)
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if value is not None and not (type(value) is kind and all(isinstance(one, parts) for one in inside)):
            raise UserError(f"'{file}': {key} {value!r} is not as training writes it; fix it, or copy the file again")
    return values


# Of what is read of a task.json: its type, and those of what is in it.
_TASK: dict[str, tuple[type, tuple[type, ...]]] = {
    "labels": (list, (str, int, float)),
    "inputs": (list, (str,)),
    "max_seq_length": (int, ()),
    "prompts": (dict, (str,)),
    "default_prompt_name": (str, ()),
    "similarity_fn_name": (str, ()),
}
