"""The commands: their --help, and what they say of settings that cannot be."""

import functools
import gc
import json
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .configurations import SIZES
from .groups import Case, Folders
from .places import COMMANDS, take
from .refusals import COMMAND_LINES, CONFIGURATIONS, MODELS
from .texts import corpus, tables, wordpiece

_TIMEOUT = 240.0


def cases(folders: Folders) -> Iterator[Case]:
    """Returns the cases of commands."""
    for module in COMMANDS:
        yield f"--help of {module}", functools.partial(run, module, "--help", folders=folders)
    place = prepared(folders)
    yield "libraries", preload
    for module, lines in COMMAND_LINES.items():
        for line in lines:
            arguments = [part.format(place=place) for part in line]
            yield f"{module} {' '.join(line)}", functools.partial(run, module, *arguments, folders=folders)
    # These import TensorFlow, and no process is forked from here on.
    yield "refused configurations", refused_configurations
    yield "refused models", refused_models
    yield "configuration files", configuration_files, folders


def preload() -> dict[str, Any]:
    """Imports what commands are slow to import: a process forked afterwards need not. Computes nothing."""
    import keras
    import numba
    import tensorflow as tf
    import tensorflow_text

    gc.freeze()
    return {module.__name__: module.__version__ for module in (keras, numba, tf, tensorflow_text)}


def prepared(folders: Folders) -> Path:
    """Writes the files that command lines name."""
    place = folders.scratch / "given"
    if not place.is_dir():
        place.mkdir()
        corpus(place / "corpus.txt", 6)
        wordpiece(place / "vocab.txt")
        tables(place)
        (place / "config.json").write_text(json.dumps(SIZES | {"vocab_size": 120}))
        (place / "empty").mkdir()
        (place / "empty.txt").write_text("")
        (place / "broken.json").write_text("{")
        (place / "broken.keras").write_text("no zip")
    return place


def run(module: str, *arguments: str, folders: Folders, where: str = "", eagerly: bool = False) -> dict[str, Any]:
    """Runs a command in a forked process; returns its status and what it printed, without paths and times.

    Args:
        module: what `python -m` takes.
        *arguments: of the command.
        folders: of the group.
        where: put before the names of what is returned.
        eagerly: whether TensorFlow's functions run without graphs, which take longer to build than tiny models to run.
    """
    prefix = f"{where}/" if where else ""
    names = {name: folders.scratch / f"{name}.txt" for name in ("stdout", "stderr")}
    child = os.fork()
    if not child:
        _become(module, arguments, names, eagerly)
    status = _wait(child)
    found = {f"{prefix}{name}": scrubbed(path.read_text(errors="replace"), folders) for name, path in names.items()}
    return found | {f"{prefix}status": str(status)}


def _become(module: str, arguments: tuple[str, ...], names: dict[str, Path], eagerly: bool) -> None:
    """Runs the command in this process, which ends with it."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(names[name], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = [module, *arguments]
        sys.orig_argv = [sys.executable, "-m", module, *arguments]
        if eagerly:
            import tensorflow as tf

            tf.config.run_functions_eagerly(True)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int) -> int:
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"the command ran for more than {_TIMEOUT:.0f} s")


def scrubbed(text: str, folders: Folders) -> str:
    """Returns a text without what differs from run to run: folders, times, speeds, lines of progress."""
    import importlib.util

    spec = importlib.util.find_spec("tfrecords")
    tree = Path(spec.origin).parents[1] if spec and spec.origin else Path("/nowhere")
    for path, name in ((folders.scratch, "SCRATCH"), (folders.write, "LEFT"), (folders.read, "LEFT"), (tree, "TREE")):
        text = text.replace(str(path), name)
    lines = (re.split(r"\r", line)[-1] for line in text.splitlines())
    kept = [line for line in lines if not _PROGRESS.search(line)]
    return _TIME.sub("TIME", _DATE.sub("DATE", "\n".join(kept)))


_PROGRESS = re.compile(r"it/s|s/it|\d+%\||\[\d\d:\d\d|W0000|I0000|E0000|^WARNING:|TF-TRT|oneDNN|cuda|XLA service")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T@]\d\d:\d\d:\d\d([.,]\d+)?")
_TIME = re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|seconds|minutes|hours|examples/s|tokens/s|GFLOP/s|MB/s)\b")


def refused_configurations() -> dict[str, str]:
    """The sentence that each impossible configuration gets."""
    config, found = take("AlbertConfig"), {}
    for fields in CONFIGURATIONS:
        found[json.dumps(fields)] = _said(lambda fields=fields: config.from_dict(SIZES | fields))
    found["named"] = _said(lambda: config.named("albert_base_v3"))
    return found


def refused_models() -> dict[str, str]:
    """The sentence that each impossible model or call gets."""
    return {name: _said(call) for name, call in MODELS.items()}


def _said(call: Any) -> str:
    """Returns the text that a call gives, "accepted" for anything else, or its error."""
    try:
        given = call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return given if isinstance(given, str) else "accepted"


def configuration_files(folders: Folders) -> dict[str, str]:
    """What is read of configuration files that other code bases write."""
    config, found = take("AlbertConfig"), {}
    files = {
        "google": {"vocab_size": 30000, "hidden_size": 64, "num_attention_heads": 2, "net_structure_type": 0},
        "albert": {"model_type": "albert", "hidden_size": 64, "num_attention_heads": 2, "hidden_act": "gelu_new"},
        "bert": {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2, "layer_norm_eps": 1e-6},
        "roberta": {"model_type": "roberta", "hidden_size": 64, "num_attention_heads": 2, "pad_token_id": 1},
        "xlnet": {"model_type": "xlnet", "d_model": 64, "n_head": 2, "n_layer": 3, "d_inner": 128},
        "unknown key": {"hidden_size": 64, "num_attention_heads": 2, "colour": 1},
        "another": {"model_type": "t5"},
    }  # fmt: skip
    for name, values in files.items():
        path = folders.scratch / f"{name}.json"
        path.write_text(json.dumps(values))
        said = _said(lambda path=path: json.dumps(config.from_json(path).to_dict(), indent=1))
        found[name] = scrubbed(said, folders)
    return found
