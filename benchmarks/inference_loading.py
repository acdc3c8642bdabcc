"""Load time and memory of a SavedModel, in a process of its own: `python -m benchmarks.inference_loading FOLDER`."""

import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path


def measure(folder: Path) -> dict[str, float]:
    """Seconds and added MiB of resident memory after loading, after a first 1x128 request, and when freed memory was
    given back."""
    command = [sys.executable, "-m", "benchmarks.inference_loading", str(folder)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def export_keras_hub(config, folder: Path) -> None:
    """keras-hub's AlbertBackbone of the same sizes, by its own `export`."""
    import keras
    import keras_hub

    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size, num_layers=config.num_hidden_layers, num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size, hidden_dim=config.hidden_size, intermediate_dim=config.intermediate_size,
    )  # fmt: skip
    names = ("token_ids", "segment_ids", "padding_mask")
    signature = {name: keras.InputSpec(shape=(None, None), dtype="int32", name=name) for name in names}
    backbone.export(str(folder), input_signature=[signature], verbose=False)


def _resident() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    import tensorflow as tf

    tf.constant(1) + 1
    before, start = _resident(), time.perf_counter()
    model = tf.saved_model.load(sys.argv[1])
    loaded, loaded_mib = time.perf_counter() - start, _resident() - before
    signature = model.signatures["serving_default"]
    inputs = {}
    for name, spec in signature.structured_input_signature[1].items():
        inputs[name] = tf.fill([1], 128) if spec.shape.rank == 1 else tf.ones([1, 128], spec.dtype)
    signature(**inputs)
    found = {"load_seconds": loaded, "load_MiB": loaded_mib}
    found |= {"seconds": time.perf_counter() - start, "MiB": _resident() - before}
    ctypes.CDLL(None).malloc_trim(0)
    print(json.dumps(found | {"trimmed_MiB": _resident() - before}))


if __name__ == "__main__":
    main()
