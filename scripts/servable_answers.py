"""Prints by how much each export's probabilities differ from Keras's, in an environment without albert-tf.

python servable_answers.py FOLDER, with what `scripts.published_server export` wrote into FOLDER; NumPy, and TensorFlow
with tensorflow-text or ai-edge-litert, are all that it needs.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np


def ask_saved_model(version: Path, expected: dict) -> np.ndarray:
    """Returns the probabilities of its serving signature, by text or by ids."""
    import tensorflow as tf

    try:
        import tensorflow_text  # noqa: F401
    except ImportError:
        if not version.parent.name.startswith("ids"):
            raise
    loaded = tf.saved_model.load(str(version))
    signature = loaded.signatures["serving_default"]
    if "text" in signature.structured_input_signature[1]:
        return signature(text=tf.constant(expected["texts"]))["probabilities"].numpy()
    lengths = [len(row) for row in expected["ids"]]
    ids = [[*row, *[0] * (max(lengths) - len(row))] for row in expected["ids"]]
    inputs = {"input_ids": tf.constant(ids), "lengths": tf.constant(lengths)}
    return signature(**inputs)["probabilities"].numpy()


def ask_litert(version: Path, expected: dict) -> np.ndarray:
    """Returns the softmax of the file's logits, row by row."""
    from ai_edge_litert.interpreter import Interpreter

    rows = []
    for ids in expected["ids"]:
        interpreter = Interpreter(model_content=(version / "model.tflite").read_bytes())
        values = {"input_ids": ids, "segment_ids": [0] * len(ids), "lengths": len(ids)}
        runner = interpreter.get_signature_runner()
        inputs = {name: np.array([values[name]], np.int32) for name in runner.get_input_details()}
        (logits,) = (np.exp(value[0]) for name, value in runner(**inputs).items() if name == "logits")
        rows.append(logits / logits.sum())
    return np.stack(rows)


def main() -> None:
    """Prints JSON: by export, the largest difference, or the error's first line."""
    folder, found = Path(sys.argv[1]), {}
    ask = ask_litert if importlib.util.find_spec("tensorflow") is None else ask_saved_model
    for name, expected in json.loads((folder / "expected.json").read_text()).items():
        version = folder / name / "1"
        if (version / "model.tflite").exists() != (ask is ask_litert):
            continue
        try:
            found[name] = float(np.abs(ask(version, expected) - np.array(expected["probabilities"])).max())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150]}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
