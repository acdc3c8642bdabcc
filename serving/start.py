"""Exports a model if needed, and serves it with OpenAI's API, REST and gRPC.

python -m serving.start --model=sst2
python -m serving.start --model=sentence-transformers/all-MiniLM-L6-v2 --port=8080
"""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert_tf.choices import ALLOW_PICKLE_HELP
from albert_tf.loading.hub import check_model as check_source
from serving.export import ExportSettings, export
from serving.export_settings import COMPUTE
from serving.gateway.keys import Keys
from serving.lite.start import PortSettings
from serving.manifest import LITERT, MANIFEST, SAVED_MODEL, read_manifest, versions_of
from tfrecords.base.errors import UserError, check_libraries
from tfrecords.base.files import locked, output_folder, whole_path
from tfrecords.base.machine.cpu import cores
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import setting

_REAL = "tensorflow_model_server"
_TERMINATION_S = 25
_NAMES = {"tensorflow": "SavedModel", "litert": "LiteRT version, without TensorFlow"}


@dataclass(frozen=True, kw_only=True)
class StartSettings(PortSettings):
    """The model to start, and its ports."""

    model: str = setting(help="folder of a model or of an export, or the name of a model on the Hugging Face hub")
    output_dir: str = setting("servables", help="folder for the exported model; later starts use the export again")
    engine: str = setting(
        "auto",
        help=f"tensorflow: a SavedModel; litert: without TensorFlow; auto: tensorflow where {_REAL} is installed or "
        "the model needs it, else litert",
        choices=("auto", "tensorflow", "litert"),
    )
    compute: str = setting(
        "auto",
        help="arithmetic of the export; auto: bfloat16 of a SavedModel where this CPU has it, int8 of litert where "
        "its answers stay near enough",
        choices=(*COMPUTE, "auto"),
    )
    max_seq_length: int = setting(0, help="longest row in tokens; 0: the model's own", at_least=0)
    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)


def find_servable(settings: StartSettings) -> Path:
    """Exports the model if necessary, and returns its base path for a server.

    Raises UserError if there is no such model, or export fails.
    """
    given = Path(settings.model)
    if any((given / name).is_file() for name in (SAVED_MODEL, LITERT)):
        raise UserError(
            f"--model={given} is a version of an export; give its parent folder, '{given.resolve().parent}'"
        )
    if versions_of(given):
        return given
    base, has_real = Path(settings.output_dir) / (settings.name or _name_of(settings.model)), shutil.which(_REAL)
    engine, why, near = settings.engine, "", ""
    if engine == "auto" and (has_real or settings.compute == "bfloat16"):
        engine, why = "tensorflow", f"{_REAL} is installed" if has_real else "LiteRT has no bfloat16"
    elif engine == "auto":
        engine, why = "litert", f"{_REAL} is not installed"
    # Of two first starts at the same moment, the second sees what the first exported.
    with output_folder(base), locked(base, wait=True):
        try:
            near = _export(settings, base, engine)
        except NeedsSavedModel as error:
            if settings.engine == "litert":
                raise
            engine, why = "tensorflow", str(error)
            _export(settings, base, engine)
    other = {"litert": "tensorflow", "tensorflow": "litert"}[engine]
    choices = [f"{why}; --engine={other} serves a {_NAMES[other]}"] if why else []
    if choices := choices + ([near] if near else []):
        print(f"serving a {_NAMES[engine]}: {'; '.join(choices)}", file=sys.stderr)
    return base


class NeedsSavedModel(UserError):
    """LiteRT does not do what the model needs."""


def _export(settings: StartSettings, base: Path, engine: str) -> str:
    """Exports the model unless that was done; returns why in this arithmetic, if that was decided now."""
    compute = "int8" if engine == "litert" and settings.compute == "auto" else settings.compute
    asked = ExportSettings(
        model=whole_path(settings.model),
        output_dir=str(base),
        inputs="text",
        engine=engine,
        compute=compute,
        max_seq_length=settings.max_seq_length,
        # What the gateway calls, too.
        **{"warm_up_signatures": "serving_default,tokenize"} if engine == "tensorflow" else {},
        allow_pickle=settings.allow_pickle,
    )
    # What a later start compares: whether 8 bits were near enough need not be tried again.
    kept = dataclasses.asdict(asked) | {"compute": settings.compute}
    # A server answers by the latest version alone.
    for version in versions_of(base)[-1:]:
        exported = read_manifest(version).get("export", {})
        if whole_path(exported.get("model", asked.model)) != asked.model:
            raise UserError(
                f"'{base}' holds an export of '{exported['model']}', which a server may be using; give another --name "
                "or --output_dir"
            )
        if _is_export_of(version, exported, kept):
            print(f"using {version}, which was exported before", file=sys.stderr)
            return ""
    if engine == "tensorflow":
        print(f"exported {export(asked)}", file=sys.stderr)
        return ""
    loaded, why = _loaded(asked), ""
    version = _write(loaded, asked)
    if settings.compute == "auto":
        from serving.litert.agreement import agrees

        is_near, found = agrees(loaded, version)
        taken, other = ("int8", "float32") if is_near else ("float32", "int8")
        why = f"in {taken}, since {found}; --compute={other} serves the other"
        if not is_near:
            shutil.rmtree(version)
            version = _write(loaded, dataclasses.replace(asked, compute=taken))
    from serving.exporting import write_source

    write_source(version, kept)
    print(f"exported {version}", file=sys.stderr)
    return why


def _loaded(asked: ExportSettings) -> Any:
    """Returns the model; raises NeedsSavedModel if LiteRT does not do what it needs."""
    check_source(asked.model, asked.allow_pickle)
    start_tensorflow()
    from albert_tf.loading.load import load
    from serving.litert.converter import check_model

    loaded = load(asked.model)
    try:
        check_model(loaded.model)
    except UserError as error:
        raise NeedsSavedModel(str(error).partition(";")[0]) from error
    if getattr(loaded.model, "exit_heads", []):
        raise NeedsSavedModel("the model exits early, which LiteRT does not")
    return loaded


def _write(loaded: Any, asked: ExportSettings) -> Path:
    from serving.exporting import export_loaded

    options = {name: getattr(asked, name) for name in ("inputs", "engine", "compute", "max_seq_length")}
    return export_loaded(loaded, asked.output_dir, **options)


def _is_export_of(version: Path, exported: dict[str, Any], asked: dict[str, Any]) -> bool:
    without_effect = ("model", "output_dir", "allow_pickle")
    same = {name: value for name, value in asked.items() if name not in without_effect}
    if not exported or not same.items() <= exported.items():
        return False
    place = Path(asked["model"])
    states = [path.stat() for path in (place, *place.rglob("*"))] if place.exists() else []
    # A copy or a renamed folder keeps the first of these times.
    written = max((max(state.st_mtime, state.st_ctime) for state in states), default=0.0)
    return written <= (version / MANIFEST).stat().st_mtime


def _name_of(model: str) -> str:
    return Path(os.path.abspath(model)).name.removesuffix(".keras") if Path(model).exists() else model.split("/")[-1]


def commands(settings: StartSettings, base: Path, socket_path: str) -> list[list[str]]:
    """Returns the commands to run: tensorflow_model_server and the gateway, or the embedded server."""
    python = [sys.executable, "-m"]
    real = shutil.which(_REAL)
    if real is None or not all((version / SAVED_MODEL).is_file() for version in versions_of(base)[-1:]):
        return [[*python, "serving.model_server", *settings.server_flags(base)]]
    server, name = settings.model_flags(base), settings.served_name(base)
    server += [f"--tensorflow_{kind}_op_parallelism={cores()}" for kind in ("intra", "inter")]
    # It listens on every network interface: a port that must not be open there has to be off.
    is_open = settings.is_open("grpc")
    target = f"127.0.0.1:{settings.grpc_port}" if is_open else f"unix:{socket_path}"
    server += [f"--port={settings.grpc_port}"] if is_open else ["--port=0", f"--grpc_socket_path={socket_path}"]
    server += [f"--rest_api_port={settings.rest_api_port if settings.is_open('rest') else 0}"]
    gateway = [f"--target={target}", f"--model={name}", f"--port={settings.port}"]
    gateway += [f"--bind_address={settings.bind_address}"]
    gateway += [f"--api_key_file={settings.api_key_file}"] if settings.api_key_file else []
    return [[real, *server], [*python, "serving.gateway", *gateway]]


def run_together(started: list[list[str]]) -> int:
    """Runs processes until one ends or a signal comes; then ends the others.

    Returns the status of the first that ended; 0 after SIGTERM or Ctrl-C.
    """
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
    # In groups of their own: Ctrl-C reaches this process alone, which ends the gateway first.
    processes = [subprocess.Popen(command, start_new_session=True) for command in started]
    status = None
    while not asked and status is None:
        time.sleep(0.1)
        status = next((process.poll() for process in processes if process.poll() is not None), None)
    for process in reversed(processes):
        process.terminate()
        try:
            process.wait(_TERMINATION_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return 0 if status is None else status


def main(settings: StartSettings) -> None:
    """Exports the model if needed, and runs the servers."""
    check_libraries("start", "gateway", starlette="starlette")
    settings.check_ports()
    if settings.api_key_file:
        Keys.read(settings.api_key_file)
    base = find_servable(settings)
    settings.say_address()
    with tempfile.TemporaryDirectory() as folder:
        started = commands(settings, base, f"{folder}/grpc")
        is_real = os.path.basename(started[0][0]) == _REAL
        ports = {"grpc": settings.grpc_port, "rest": settings.rest_api_port}
        open_ports = " and ".join(str(port) for name, port in ports.items() if port and settings.is_open(name))
        if settings.bind_address != "0.0.0.0" and is_real and open_ports:  # nosec B104
            print(
                f"warning: {_REAL} has no --bind_address: ports {open_ports} are open on every network interface; close"
                " them by a firewall or a container if only the gateway is to be reached",
                file=sys.stderr,
            )
        if settings.api_key_file and (closed := [name for name in ports if not settings.is_open(name)]):
            where = "off" if is_real else "for this machine alone"
            print(f"the ports that ask for no key are {where} ({', '.join(closed)}); see --open_ports", file=sys.stderr)
        status = run_together(started)
    sys.exit(status)


def run() -> None:
    """Runs the command."""
    run_main(main, StartSettings)


if __name__ == "__main__":
    run()
