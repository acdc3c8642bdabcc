"""What a container's share of the CPU costs: `python -m benchmarks.quota --help`.

Each kind of work runs in a process of its own: pinned to one core; under a quota of one core, whose threads follow it;
and with as many threads as --threads says, as where the quota is not read. The group of the quota is made here, which
takes root and a file system of cgroups that may be written.
"""

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.machine import machine_line
from benchmarks.timing import seconds_of

# Calls of each kind of work that are timed.
CALLS = {"light": 200, "server": 200, "step": 10, "building": 10, "encoding": 3}
CALLS |= dict.fromkeys(("OpenVINO", "ONNX Runtime", "sentence-transformers"), 200)
_GROUPS = {"cpu.max": "100000 100000", "cpu/cpu.cfs_quota_us": "100000"}


def make_work(name: str, folder: Path, stack: contextlib.ExitStack) -> Callable[[], object]:
    """Returns a function that does the work once."""
    from albert_tf.checkpoints import save_huggingface
    from benchmarks import inference, inference_peers, texts, training

    if name == "building":
        text, vocabulary = texts.topics_and_vocabulary(folder, 2000)
        large = folder / "large.txt"
        large.write_text((text.read_text() + "\n") * round(3e6 / text.stat().st_size))
        command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={large}", "--overwrite"]
        command += [f"--tokenizer={vocabulary}", f"--output_dir={folder}/data", "--split_sentences"]
        return functools.partial(subprocess.run, command, check=True, capture_output=True)
    if name == "step":
        arguments = argparse.Namespace(batch=8, length=128, predictions=20, dtype="float32", optimizer="lamb")
        records = training.build_records(folder, arguments.length, arguments.predictions)
        return training.our_step(training.AlbertConfig.named("albert_base_v2"), arguments, records)
    encoder = inference.make_random_encoder("albert_base_v2", layers=2 if name == "encoding" else 0)
    lengths = np.random.default_rng(0).integers(8, 48, 1400) if name == "encoding" else [32]
    rows = [inference.inference_data.shape(1, length, encoder.config.vocab_size)[0] for length in lengths]
    if name in ("encoding", "light"):
        # Set by the parent for threads that do not follow the quota.
        threads = int(os.environ.get("TF_NUM_INTRAOP_THREADS", 0))
        run = inference.export_lite(encoder, "int8", folder / "m", threads)
        ids, _, all_lengths = inference.inference_data.pad(rows)
        return lambda: run(ids, all_lengths)
    if name == "server":
        from benchmarks.servers import model_server
        from serving.client import Client

        inference.Loaded(encoder, None, {}).export(folder / "m", compute="int8")
        target = stack.enter_context(model_server(folder / "m"))
        client = stack.enter_context(Client(target, "m"))
        return lambda: client.predict_ids(rows)
    if name == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        _, vocabulary = texts.topics_and_vocabulary(folder, 2000)
        vocabulary.rename(save_huggingface(encoder, folder / "m") / "spiece.model")
        model = SentenceTransformer(str(folder / "m"), device="cpu")
        return lambda: model.encode("the " * 30)
    peers = inference_peers.make_peers(encoder, folder, 0, rows * 32)
    run, ids = peers[f"{name} {'int8' if name == 'OpenVINO' else 'fp32'}"], np.array(rows)
    return lambda: run(ids, np.ones_like(ids))


def work(name: str) -> None:
    """Prints the milliseconds of each call."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        call = make_work(name, Path(folder), stack)
        for _ in range(CALLS[name] // 10 + 1):
            call()
        # The quota of what came before is paid.
        time.sleep(1)
        print(json.dumps([1e3 * seconds_of(call) for _ in range(CALLS[name])]))


@contextlib.contextmanager
def quota_of_one_core() -> Iterator[Path]:
    """Yields a new control group with that quota."""
    with contextlib.ExitStack() as stack:
        for name, quota in _GROUPS.items():
            folder = (Path("/sys/fs/cgroup") / name).parent / f"quota-{os.getpid()}"
            with contextlib.suppress(OSError):
                folder.mkdir()
                stack.callback(folder.rmdir)
                # Kernels with cgroup v1 have a plain folder there, in which any file can be written.
                if (folder / "cgroup.procs").exists():
                    (folder / Path(name).name).write_text(quota)
                    break
        else:
            sys.exit("error: no control group with a quota can be made in /sys/fs/cgroup; that takes root")
        yield folder


def measure(name: str, start: list[str], environment: dict[str, str]) -> str:
    """Runs the work; returns mean, median and 99th percentile."""
    command = [*start, sys.executable, "-m", "benchmarks.quota", f"--work={name}"]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return "failed"
    times = json.loads(done.stdout.splitlines()[-1])
    return " ".join(f"{value:9.1f}" for value in (np.mean(times), *np.percentile(times, [50, 99])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default=",".join(CALLS), help="kinds of work, separated by commas")
    parser.add_argument("--threads", type=int, default=16, help="threads of the last column")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    print(f"{machine_line()}; milliseconds: mean, median, 99th percentile")
    unread = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), str(arguments.threads))
    with quota_of_one_core() as group:
        # The shell joins the group, and then becomes the work.
        inside = ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh"]
        for name in arguments.works.split(","):
            print(f"{name:12} one core      {measure(name, ['taskset', '-c', '0'], {})}", flush=True)
            print(f"{name:12} quota         {measure(name, inside, {})}", flush=True)
            print(f"{name:12} {arguments.threads:2} threads    {measure(name, inside, unread)}", flush=True)


if __name__ == "__main__":
    main()
