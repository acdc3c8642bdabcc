"""What a version holds and how it came to be, for whoever finds it on a server later."""

import datetime
import importlib.metadata
from pathlib import Path
from typing import Any

from albert_tf.loading import Loaded
from serving.cpu import advise
from serving.exportable import Exportable
from tfrecords.base import files

FILE = "assets.extra/manifest.json"


def write_manifest(
    version: Path, loaded: Loaded, exportable: Exportable, settings: dict[str, Any], differences: dict | None
) -> None:
    """Writes the manifest into a version's folder.

    Args:
        version: The folder.
        loaded: The model that was exported, with its tokenizer and task.
        exportable: What became of it.
        settings: Those of the export.
        differences: Those of the check, largest absolute difference by output; None where there was none.
    """
    model, options = loaded.model, exportable.options
    path = version / FILE
    path.parent.mkdir(exist_ok=True)
    description = {
        "model": type(model).__name__,
        "parameters": model.count_params(),
        "config": exportable.encoder.config.to_dict(),
        "task": loaded.task or None,
        "metrics": loaded.task.get("metrics"),
        "inputs": "ids" if options.tokenizer is None else "text",
        "max_seq_length": options.max_seq_length,
        "compute": exportable.encoder.describe(),
        "advice": advise(exportable.encoder.options.compute),
        "tokenizer_sha256": None if options.tokenizer is None else options.tokenizer.sha256,
        "signatures": {name: _signature(signature) for name, signature in exportable.signatures().items()},
        "memory": _memory(exportable),
        "check": differences,
        "export": settings,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "tensorflow-text")},
        "files_sha256": {
            str(file.relative_to(version)): files.sha256(file) for file in sorted(version.rglob("*")) if file.is_file()
        },
    }
    files.write_json(path, description)


def _memory(exportable: Exportable) -> dict[str, Any] | None:
    """What the signature `stateful` hands on from row to row; None where there is none."""
    if "stateful" not in exportable.signatures():
        return None
    return {
        "axes": ["batch", "steps", "places", "hidden_size"],
        "memory_lengths": "how many of the last places hold something",
        "first_row": "zeros, with memory_lengths 0",
    }


def _signature(signature) -> dict[str, str]:
    return {
        name: f"{spec.dtype.name} [{', '.join(map(str, spec.shape.as_list()))}]".replace("None", "any")
        for name, spec in signature.inputs.items()
    }
