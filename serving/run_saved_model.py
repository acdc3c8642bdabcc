"""Calls a SavedModel in a separate process that knows only its folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

Calls = list[tuple[str, dict[str, np.ndarray]]]


def run_calls(version: Path, calls: Calls) -> list[dict[str, np.ndarray]]:
    """Returns the signatures' answers from a new Python process.

    Raises RuntimeError with the last line of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        flat = {f"{i}/{name}/{key}": value for i, (name, inputs) in enumerate(calls) for key, value in inputs.items()}
        np.savez(Path(folder) / "calls.npz", **flat)
        command = [sys.executable, "-m", "serving.run_saved_model", str(version), folder]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))}
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode:
            raise RuntimeError((process.stderr.strip().splitlines() or [f"status {process.returncode}"])[-1])
        with np.load(Path(folder) / "answers.npz") as answers:
            found = [{} for _ in calls]
            for key in answers.files:
                number, name = key.split("/", 1)
                found[int(number)][name] = answers[key]
            return found


def _serve(version: str, folder: str) -> None:
    loaded = tf.saved_model.load(version)
    inputs: dict[tuple[str, str], dict] = {}
    with np.load(Path(folder) / "calls.npz") as calls:
        for key in calls.files:
            number, signature, name = key.split("/")
            inputs.setdefault((number, signature), {})[name] = tf.constant(calls[key])
    answers = {}
    for (number, signature), arguments in inputs.items():
        for name, value in loaded.signatures[signature](**arguments).items():
            array = value.numpy()
            # Fixed-width bytes: an object array would need pickle.
            answers[f"{number}/{name}"] = array.astype(bytes) if array.dtype == object else array
    np.savez(Path(folder) / "answers.npz", **answers)


if __name__ == "__main__":
    import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizers' ops)

    _serve(*sys.argv[1:])
