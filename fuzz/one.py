"""One target under atheris: `python -m fuzz.one TARGET SECONDS CORPUS FOUND`; `fuzz.run` starts it.

An input that raises what its target does not promise, or takes too long or too much memory, is written into FOUND with
the traceback, once for each place that raises, and the run goes on.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from fuzz.guard import ROOT, Faults, guarded

# Compiled kernels run as Python: a place outside of an array is an IndexError there, not another's memory.
os.environ["NUMBA_DISABLE_JIT"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def main() -> None:
    """Fuzzes until the time is over."""
    import atheris

    name, seconds, corpus, found = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    with atheris.instrument_imports(include=["tfrecords", "albert_tf", "serving"]):
        from fuzz.mutation import json_mutator
        from fuzz.targets import TARGETS

        target = TARGETS[name]
        folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        run, faults = guarded(target.make(folder), target.promised), Faults(found)

    def one(data: bytes) -> None:
        try:
            run(data)
        except Exception as error:
            faults.add(error, data)

    words = folder.with_suffix(".words")
    words.write_text("".join(f'"{word}"\n' for word in target.words if word.isprintable() and '"' not in word))
    arguments = [
        sys.argv[0], str(corpus), str(ROOT / "fuzz" / "seeds" / name), f"-max_total_time={seconds}",
        f"-max_len={target.max_bytes}", "-timeout=60", "-rss_limit_mb=4096", f"-artifact_prefix={found}/",
        # The fuzzer refuses an empty file of words.
        *([f"-dict={words}"] if words.stat().st_size else []),
        "-print_final_stats=1", "-len_control=10", "-verbosity=1",
    ]  # fmt: skip
    options = {}
    if target.json is not None:
        options["custom_mutator"] = json_mutator(target.json, target.words)
    atheris.Setup(arguments, one, **options)
    with contextlib.suppress(KeyboardInterrupt):
        atheris.Fuzz()


if __name__ == "__main__":
    main()
