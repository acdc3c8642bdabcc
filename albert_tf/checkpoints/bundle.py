"""TensorFlow 1 checkpoint files: `prefix.index` and `prefix.data-*`."""

import os
import re
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.reason import reason
from tfrecords.base.errors import UserError

# Optimizer slots and counters of training checkpoints; no model keeps them.
_SLOT = re.compile(r"/(adam_[mv]|Adam(_1)?|lamb_[mv])$|^(global_step|beta[12]_power|loss_scale.*)$")


def checkpoint_prefix(path: str | os.PathLike) -> str:
    """The prefix that `path` names, or that is in the folder `path`."""
    path = Path(path)
    if path.suffix == ".index":
        path = path.with_suffix("")
    if path.with_name(path.name + ".index").is_file():
        return str(path)
    if not path.is_dir():
        raise UserError(f"no TensorFlow checkpoint at '{path}': there is no '{path}.index'")
    found = sorted(str(index.with_suffix("")) for index in path.glob("*.index"))
    try:
        latest = tf.train.latest_checkpoint(str(path))
    except ValueError:
        # The file `checkpoint` is empty or no text; TensorFlow itself passes over other damage.
        latest = None
    if latest in found:
        return latest
    if len(found) != 1:
        raise UserError(f"'{path}' holds {len(found)} TensorFlow checkpoints {found}; give one's prefix")
    return found[0]


def read_tensors(prefix: str) -> dict[str, np.ndarray]:
    """All tensors of a bundle by name, without optimizer slots and step counters."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        names = sorted(name for name in reader.get_variable_to_shape_map() if not _SLOT.search(name))
        return {name: reader.get_tensor(name) for name in names}
    except (tf.errors.OpError, ValueError, LookupError, RuntimeError) as error:
        raise UserError(f"cannot read the TensorFlow checkpoint '{prefix}': {reason(error)}") from error


def write_tensors(prefix: str | os.PathLike, tensors: dict[str, np.ndarray]) -> None:
    """Writes a bundle as tf.train.Saver does: tensors by name, one data file."""
    prefix, names = Path(prefix), sorted(tensors)
    values = [tensors[name] for name in names]
    with tempfile.TemporaryDirectory(dir=prefix.parent, prefix=".partial") as folder:
        temporary = str(Path(folder) / prefix.name)
        tf.raw_ops.SaveV2(prefix=temporary, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
        # The index last: a checkpoint without one is not there.
        for suffix in (".data-00000-of-00001", ".index"):
            os.replace(temporary + suffix, f"{prefix}{suffix}")
