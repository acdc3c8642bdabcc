"""Writes loaded models as versions of servables."""

import dataclasses
import datetime
import errno
import logging
import os
import shlex
import shutil
import socket
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from albert_tf.checkpoints.sharing import unshare_blocks
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.config.extension import Extension
from albert_tf.loading.load import Loaded
from albert_tf.loading.saving import task_of
from albert_tf.tasks.tables.held_out import held_out_rows, of_run
from serving.check import ask_once, check
from serving.evaluate import comparison, load_exported
from serving.export_settings import CALIBRATION_ROWS, ExportSettings, read_calibration, settings_of
from serving.exportable import PREDICT, Exportable, ExportOptions, make_exportable
from serving.exportable.samples import write_warm_up
from serving.inference import InferenceOptions
from serving.inference.onednn import can_run
from serving.litert.converter import check_model, lite_exportable
from serving.litert.writing import write_version as write_lite_version
from serving.manifest import FORMAT_VERSION, MANIFEST, SAVED_MODEL, read_manifest
from tfrecords.base import files
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.script import present_versions, say_next
from tfrecords.base.settings import read_numbers
from tfrecords.reading.framing import Framer, encode

# The options that may name files.
_PATHS = ("model", "tokenizer", "calibration_text")
_WRITING = ".writing-"


def export_loaded(loaded: Loaded, folder: str | os.PathLike, **options: Any) -> Path:
    """Writes a model in memory as the next version of a servable, and returns its folder.

    Args:
        loaded: From `albert_tf.load`, perhaps changed since.
        folder: Base path of the servable.
        **options: Fields of ExportSettings, except those about loading. `inputs` is "text" by default if there is a
            tokenizer.

    Raises:
        UserError: As `export`, and for an unknown option.
    """
    settings = settings_of(folder, loaded.source, loaded.tokenizer is not None, options)
    return _write(settings, dataclasses.replace(loaded, task=task_of(loaded)))


def load_and_write(settings: ExportSettings) -> Path:
    """Loads and exports a model for `serving.export.export`, which has checked the settings."""
    return _write(settings, load_exported(vars(settings)))


def _write(settings: ExportSettings, loaded: Loaded) -> Path:
    is_lite, options = settings.engine == "litert", _options(settings, loaded)
    if is_lite:
        check_model(loaded.model)
    model = _merged(loaded.model) if settings.merge_low_rank else loaded.model
    make = lite_exportable if is_lite else make_exportable
    exportable = make(model, options)
    base = files.make_output_dir(settings.output_dir)
    version = settings.version or max(_versions(base), default=0) + 1
    if (base / str(version)).exists():
        raise _exists(base, version)
    # Not a number, so that servers that poll the base path ignore it.
    _remove_unfinished(base)
    temporary = base / f"{_WRITING}{version}-{os.getpid()}-{socket.gethostname()}"
    try:
        if is_lite:
            differences = write_lite_version(temporary, loaded, exportable, options, settings.compute)
            write_source(temporary, _described(settings))
        else:
            differences = _write_saved_model(temporary, loaded, exportable, settings)
        if settings.check and (rows := of_run(loaded.source)):
            print(f"check: {comparison(loaded, temporary, rows)[1]}")
        else:
            for name, difference in (differences or {}).items():
                print(f"check: {name} differs by at most {difference:.2g} from the Keras model")
        return _put(temporary, base, version, is_next=not settings.version)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_saved_model(
    folder: Path, loaded: Loaded, exportable: Exportable, settings: ExportSettings
) -> dict[str, float] | None:
    save(exportable, folder)
    longest = exportable.options.max_seq_length
    if lengths := read_numbers("warm_up_lengths", settings.warm_up_lengths):
        names = settings.warm_up_signatures.split(",")
        write_warm_up(exportable, folder, sorted({min(length, longest) for length in lengths}), names)
    if can_run(exportable.encoder.options.compute):
        ask_once(folder, exportable)
    differences = check(folder, loaded.model, exportable) if settings.check else None
    write_manifest(folder, loaded, exportable, _described(settings), differences)
    return differences


def _described(settings: ExportSettings) -> dict[str, Any]:
    said = dataclasses.asdict(settings)
    return said | {name: files.whole_path(said[name]) for name in _PATHS}


def _merged(model: keras.Model) -> keras.Model:
    extensions = encoder_of(model).config.extensions
    if all(type(one).low_rank is Extension.low_rank for one in extensions):
        raise UserError("--merge_low_rank: this model has no low rank by depth that could be merged; leave it out")
    return unshare_blocks(model)


def _put(temporary: Path, base: Path, version: int, is_next: bool) -> Path:
    # Renames a version's folder to its number, or the next if another export took it.
    while True:
        target = base / str(version)
        try:
            os.replace(temporary, target)
            return target
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not is_next:
                raise _exists(base, version) from error
        version += 1


def _exists(base: Path, version: int) -> UserError:
    return UserError(f"version {version} exists in '{base}'; leave out --version for the next free one")


def save(exportable: Exportable, path: Path) -> None:
    """Saves an exportable with its signatures as a SavedModel."""
    signatures = exportable.signatures()
    functions = {name: signature.concrete() for name, signature in signatures.items()}
    log = tf.get_logger()
    level = log.level
    log.setLevel(max(level, logging.WARNING))  # It names a folder that is renamed at once.
    try:
        tf.saved_model.save(exportable, str(path), signatures=functions)
        # TF2 calls every signature "predict"; the Classify and Regress RPCs look at the name.
        updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(path))
        for name, signature in signatures.items():
            if signature.method != PREDICT:
                updater.replace_method_name(name, signature.method, tags="serve")
        updater.save()
    finally:
        log.setLevel(level)


def write_manifest(
    version: Path, loaded: Loaded, exportable: Exportable, settings: dict[str, Any], differences: dict | None
) -> None:
    """Writes a version's manifest; `differences` come from `serving.check`."""
    model, options, signatures = loaded.model, exportable.options, exportable.signatures()
    path = version / MANIFEST
    path.parent.mkdir(exist_ok=True)
    description = {
        "format_version": FORMAT_VERSION,
        "model": type(model).__name__,
        "parameters": model.count_params(),
        "config": exportable.encoder.config.to_dict(),
        "task": loaded.task or None,
        "metrics": loaded.task.get("metrics"),
        "inputs": "ids" if options.tokenizer is None else "text",
        "max_seq_length": options.max_seq_length,
        "compute": exportable.encoder.describe(),
        "tokenizer_sha256": None if options.tokenizer is None else options.tokenizer.sha256,
        "signatures": {name: signature.describe() for name, signature in signatures.items()},
        "check": differences,
        "export": settings,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": present_versions(),
        "files_sha256": {
            str(file.relative_to(version)): files.sha256(file) for file in sorted(version.rglob("*")) if file.is_file()
        },
    }
    files.write_json(path, description)


def _options(settings: ExportSettings, loaded: Loaded) -> ExportOptions:
    config = encoder_of(loaded.model).config
    limit = config.max_seq_length
    length = settings.max_seq_length or min(loaded.task.get("max_seq_length") or limit, limit)
    if not 8 <= length <= limit:
        raise UserError(f"--max_seq_length={length} must be from 8 to the {limit} tokens that the model takes")
    pieces = min(config.vocab_size, loaded.tokenizer.vocab_size if loaded.tokenizer else config.vocab_size)
    refuse({
        f"--top_k={settings.top_k} must be from 1 to the vocabulary's {pieces} pieces":
            settings.top_k > pieces,
        f"--inputs=text needs the vocabulary, and '{settings.model}' has no albert_tokenizer.json or "
        "published vocabulary beside it; give --tokenizer=FILE":
            settings.inputs == "text" and loaded.tokenizer is None,
    })  # fmt: skip
    same = ("exit_rule", "top_k", "doc_stride", "max_query_length", "num_choices", "dimensions")
    return ExportOptions(
        max_seq_length=length,
        tokenizer=loaded.tokenizer if settings.inputs == "text" else None,
        task=loaded.task,
        inference=InferenceOptions(settings.compute, settings.other_cpu),
        calibration=_calibration(settings, loaded, length),
        **{name: getattr(settings, name) for name in same},
    )


def _calibration(settings: ExportSettings, loaded: Loaded, length: int) -> tuple | None:
    """Returns the rows that int8 takes its ranges from: those of --calibration_text, or of the model's run."""
    tokenizer, rows = loaded.tokenizer, of_run(loaded.source)
    if settings.calibration_text:
        columns = [read_calibration(settings.calibration_text)]
        if tokenizer is None:
            raise UserError("--calibration_text needs the vocabulary; give --tokenizer=FILE")
    elif tokenizer and rows and settings.compute == "int8" and settings.engine == "tensorflow":
        held_out = held_out_rows(rows, CALIBRATION_ROWS)
        columns = [held_out[name] for name in ("text", "second_text") if name in held_out]
        print(f"ranges of int8 from rows of '{rows}'; --calibration_text takes others")
    else:
        return None
    if len(loaded.task.get("inputs") or ()) != 2:
        # Those of an embedder are read one by one.
        columns = [[text for column in columns for text in column]]
    batch = Framer(tokenizer, length).frame(*(encode(tokenizer, column) for column in columns)).padded()
    return batch.input_ids.numpy(), batch.lengths.numpy()


def write_source(version: Path, settings: dict[str, Any]) -> None:
    """Writes the manifest of a LiteRT version, which says what it was exported from."""
    (version / MANIFEST).parent.mkdir(exist_ok=True)
    said = {"format_version": FORMAT_VERSION, "export": settings, "config": {}, "versions": {}, "created": ""}
    files.write_json(version / MANIFEST, said)


def _remove_unfinished(base: Path) -> None:
    for path in base.glob(f"{_WRITING}*-*-{socket.gethostname()}"):
        process = path.name.removeprefix(_WRITING).split("-")[1]
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _versions(base: Path) -> list[int]:
    return [int(path.name) for path in base.iterdir() if path.name.isdigit()]


def say_exported(target: Path) -> None:
    """Prints what was exported, and the command that serves it."""
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"exported {target} ({size / 1e6:.1f} MB)")
    base = target.parent.resolve()
    if not (target / SAVED_MODEL).is_file():
        say_next(f"python -m serving.lite.start --folder={shlex.quote(str(base))}")
        return
    manifest = read_manifest(target)
    if not can_run(manifest["compute"]["compute"]):
        print(f"not tried, since this CPU cannot run it: needs {manifest['compute']['requires']}")
        return
    say_next(
        f"python -m serving.model_server --port=8500 --rest_api_port=8501 --model_name={base.name} "
        f"--model_base_path={shlex.quote(str(base))}"
    )
