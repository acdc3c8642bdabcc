"""Load time and memory of a SavedModel, in a process of its own.

python -m benchmarks.inference_loading FOLDER [OTHER_LENGTHS]
"""

import ctypes
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.memory import memory_mib

# Requests after the first, each of another length: oneDNN keeps kernels of every size that comes.
OTHER_LENGTHS = 400


def measure(folder: Path, other_lengths: int = OTHER_LENGTHS) -> dict[str, float]:
    """Seconds and added MiB of resident memory after loading, after a first 1x128 request, when freed memory was given
    back, and so again after requests of other lengths."""
    command = [sys.executable, "-m", "benchmarks.inference_loading", str(folder), str(other_lengths)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def trimmed_mib() -> float:
    """With freed memory given back."""
    ctypes.CDLL(None).malloc_trim(0)
    return memory_mib()


def main() -> None:
    import tensorflow as tf

    folder, other_lengths = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else OTHER_LENGTHS
    # The runtime's own threads and arenas come with the first op, whatever the model.
    tf.linalg.matmul(tf.ones([64, 64]), tf.ones([64, 64])).numpy()
    before, start = memory_mib(), time.perf_counter()
    model = tf.saved_model.load(folder)
    found = {"load_seconds": time.perf_counter() - start, "load_MiB": memory_mib() - before}
    signature = model.signatures["serving_default"]

    def request(length: int) -> None:
        inputs = {}
        for name, spec in signature.structured_input_signature[1].items():
            inputs[name] = tf.fill([1], length) if spec.shape.rank == 1 else tf.ones([1, length], spec.dtype)
        signature(**inputs)

    request(128)
    found |= {"seconds": time.perf_counter() - start, "MiB": memory_mib() - before}
    found["trimmed_MiB"] = trimmed_mib() - before
    for length in random.Random(0).sample(range(1, other_lengths + 1), other_lengths):
        request(length)
    print(json.dumps(found | {"lengths_MiB": trimmed_mib() - before}))


if __name__ == "__main__":
    main()
