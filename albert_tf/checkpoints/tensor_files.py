"""Tensor files: safetensors and PyTorch's, single or sharded."""

import zipfile
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from albert_tf.checkpoints.untrusted import check_unpacked
from albert_tf.loading.model_files import SHARDS, shards_of
from tfrecords.base.errors import UserError, first_line
from tfrecords.base.files import check_content

# Names of safetensors for the types that are read; others, such as 8-bit floats, have scales in tensors beside them.
_TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")


def read_tensors(file: Path) -> dict[str, np.ndarray]:
    """Returns all tensors of a file or shard index by name, as float32; raises UserError if it is unreadable."""
    if not file.is_file():
        raise UserError(f"no '{file}'; copy or download it again")
    with file.open("rb") as opened:
        check_content(file, opened.read(100))
    if file.name.endswith(SHARDS):
        return _read_shards(file)
    if file.suffix == ".bin":
        return _read_pytorch(file)
    try:
        with safe_open(file, framework="np") as reader:
            for name in (names := list(reader.keys())):
                if (dtype := reader.get_slice(name).get_dtype()) not in _TYPES:
                    raise UserError(
                        f"'{file}': the tensor {name} has the type {dtype}, not read here; save the model as float32"
                    )
            return {_modern(name): reader.get_tensor(name).astype("float32") for name in names}
    except UserError:
        raise
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        size = f"{file.stat().st_size:,} bytes"
        raise UserError(
            f"'{file}' is not whole, or no safetensors: {size} ({first_line(error)}); copy or download it again"
        ) from error


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    places = shards_of(index)
    shards = {name: read_tensors(index.parent / name) for name in sorted(set(places.values()))}
    found = {name: tensor for shard in shards.values() for name, tensor in shard.items()}
    # Of a tensor in two files, the listed one counts.
    listed = {_modern(name): shards[file] for name, file in places.items()}
    return found | {name: shard[name] for name, shard in listed.items() if name in shard}


def _read_pytorch(file: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"'{file}' is a PyTorch file, which PyTorch alone reads: pip install torch; "
            "or download the same model's model.safetensors, where its page has one"
        ) from error
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                check_unpacked(archive, file)
        # Tensors only: a .bin may contain any program.
        found = torch.load(file, map_location="cpu", weights_only=True)
        if any(tensor.nbytes > tensor.untyped_storage().nbytes() for tensor in found.values()):
            raise UserError(f"'{file}' holds a tensor larger than its own data; copy or download it again")
        return {_modern(name): tensor.to(torch.float32).numpy() for name, tensor in found.items()}
    except UserError:
        raise
    except Exception as error:
        # PyTorch raises whatever the damaged part does: zip, pickle, type and value errors. Its own words on pickle
        # advise to load the file all the same, which would run what is in it.
        said = "it is damaged, or holds more than tensors, which could run any program and is never loaded"
        what = said if type(error).__name__ == "UnpicklingError" else f"it is damaged ({first_line(error)})"
        raise UserError(f"cannot read '{file}' as PyTorch weights: {what}; download it anew") from error


def _modern(name: str) -> str:
    # bert-base-uncased and others of its time keep TensorFlow's names; transformers renames them on load, too.
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
