"""What a SavedModel costs to have: `python -m benchmarks.latency.footprint VERSION_FOLDER LENGTH` prints JSON.

load_seconds: tf.saved_model.load and the signature's first call, TensorFlow's own import not counted; resident_mb: the
growth of this process's resident memory over both.
"""

import json
import sys
import time
from pathlib import Path


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def footprint(path: str, length: int) -> dict[str, float]:
    import tensorflow as tf

    # The runtime's own threads and arenas come with the first op, whatever the model.
    tf.linalg.matmul(tf.ones([64, 64]), tf.ones([64, 64])).numpy()
    before, begin = resident_mb(), time.perf_counter()
    model = tf.saved_model.load(path)
    loaded = time.perf_counter() - begin
    ids, lengths = tf.fill([1, length], 7), tf.constant([length])
    model.signatures["serving_default"](input_ids=ids, lengths=lengths)
    return {
        "load_seconds": loaded,
        "load_and_first_call_seconds": time.perf_counter() - begin,
        "resident_mb": resident_mb() - before,
    }


if __name__ == "__main__":
    print(json.dumps(footprint(sys.argv[1], int(sys.argv[2]))))
