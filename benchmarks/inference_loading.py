"""Load time and memory of a SavedModel, in a process of its own: `python -m benchmarks.inference_loading FOLDER`."""

import ctypes
import json
import random
import subprocess
import sys
import time
from pathlib import Path

# Requests after the first, each of another length: oneDNN keeps kernels of every size that comes.
OTHER_LENGTHS = 400


def measure(folder: Path) -> dict[str, float]:
    """Seconds and added MiB of resident memory after loading, after a first 1x128 request, when freed memory was given
    back, and so again after OTHER_LENGTHS requests."""
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


def _trimmed() -> float:
    """With freed memory given back."""
    ctypes.CDLL(None).malloc_trim(0)
    return _resident()


def main() -> None:
    import tensorflow as tf

    tf.constant(1) + 1
    before, start = _resident(), time.perf_counter()
    model = tf.saved_model.load(sys.argv[1])
    loaded, loaded_mib = time.perf_counter() - start, _resident() - before
    signature = model.signatures["serving_default"]

    def request(length: int) -> None:
        inputs = {}
        for name, spec in signature.structured_input_signature[1].items():
            inputs[name] = tf.fill([1], length) if spec.shape.rank == 1 else tf.ones([1, length], spec.dtype)
        signature(**inputs)

    request(128)
    found = {"load_seconds": loaded, "load_MiB": loaded_mib}
    found |= {"seconds": time.perf_counter() - start, "MiB": _resident() - before}
    found["trimmed_MiB"] = _trimmed() - before
    for length in random.Random(0).sample(range(1, OTHER_LENGTHS + 1), OTHER_LENGTHS):
        request(length)
    print(json.dumps(found | {"lengths_MiB": _trimmed() - before}))


if __name__ == "__main__":
    main()
