"""Exports servables again with the options of their latest version.

python -m serving.export_again --folder=models
python -m serving.export_again --folder=models/sst2 --changed

It keeps old versions, and skips servables exported with the installed package versions.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_tf.config import AlbertConfig
from serving.export import ExportSettings, export
from serving.manifest import FORMAT_VERSION, read_manifest, versions_of
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir
from tfrecords.base.script import present_versions, run_main, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.base.version import VERSION

if TYPE_CHECKING:
    from albert_tf.loaded import Loaded


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgainSettings(CheckedSettings):
    """The servables to export again."""

    folder: str = setting(help="folder of servables, or one servable: a folder with versions 1, 2, ...")
    changed: bool = setting(
        False, help="also export a model whose weights changed since its last export, or were not recorded in it"
    )


def servables_in(folder: Path) -> list[Path]:
    """Returns the servables in a folder, or the folder itself; raises UserError if there are none."""
    bases = [folder] if versions_of(folder) else sorted(path for path in folder.glob("*/") if versions_of(path))
    if not bases:
        raise UserError(f"no servable in '{folder}': neither it nor a folder in it holds versions 1, 2, ... of a model")
    return bases


def again(base: Path, changed: bool = False) -> Path | None:
    """Exports a servable's model as the next version, with the options of its latest one.

    Returns None if the latest was exported with the installed package versions. `changed` allows a changed model.

    Raises:
        UserError: The model is missing or changed, or the manifest is too old.
    """
    latest = versions_of(base)[-1]
    manifest = read_manifest(latest)
    if manifest.get("versions") == present_versions() and manifest.get("format_version") == FORMAT_VERSION:
        return None
    settings = _settings(latest, base, manifest)

    def check_loaded(loaded: "Loaded") -> None:
        if not changed and (what := _difference(manifest, loaded)):
            raise UserError(f"'{settings.model}' {what}; export it by albert-tf export, or add --changed")

    return export(settings, check_loaded)


def _settings(version: Path, base: Path, manifest: dict[str, Any]) -> ExportSettings:
    options = manifest.get("export")
    if not options:
        raise UserError(f"'{version}' does not say how it was exported; export its model by albert-tf export")
    known = {field.name for field in dataclasses.fields(ExportSettings)}
    if unknown := sorted(options.keys() - known):
        raise UserError(
            f"'{version}' was exported with '{unknown[0]}', which albert-tf export has not; export its model by that"
        )
    settings = ExportSettings(**options | {"output_dir": str(base), "version": 0})
    if automatic := [name for name in ("compute", "engine") if getattr(settings, name) == "auto"]:
        start_tensorflow()
        from serving.inference import InferenceOptions

        options = InferenceOptions(settings.compute, settings.padding, engine=settings.engine)
        options = options.resolved(AlbertConfig.from_dict(manifest["config"]))
        for name in automatic:
            before, now = manifest["compute"][name], getattr(options, name)
            if before != now:
                raise UserError(
                    f"'{version}' was exported by --{name}=auto as {before}, and this CPU's is {now}; export it again "
                    "on a CPU like that of before, or by albert-tf export"
                )
    is_path = Path(settings.model).is_absolute() or settings.model == "a model in memory"
    if is_path and not Path(settings.model).exists():
        raise UserError(f"'{settings.model}', from which '{version}' was exported, is gone; put it back")
    return settings


def _difference(manifest: dict[str, Any], loaded: "Loaded") -> str:
    from serving.exporting import weights_sha256

    encoder, tokenizer = getattr(loaded.model, "encoder", loaded.model), loaded.tokenizer
    if manifest["weights_sha256"] is None:
        return "may have changed: the export was written by albert-tf 0.1, which did not say which weights it had"
    if manifest["weights_sha256"] != weights_sha256(loaded.model):
        return f"has other weights than on {manifest['created'][:10]}"
    if manifest["tokenizer_sha256"] not in (None, tokenizer and tokenizer.sha256):
        return f"has another tokenizer than on {manifest['created'][:10]}"
    now = {"config": encoder.config.to_dict(), "task": loaded.task}
    for part, values in now.items():
        said = manifest[part] or {}
        # A later albert-tf may say more.
        names = {**said, **values} if manifest["versions"].get("albert-tf") == VERSION else said
        for name in names:
            if name != "metrics" and values.get(name) != said.get(name):
                return f"has another {part} than on {manifest['created'][:10]}: {name} was {said.get(name)!r}"
    return ""


def main(settings: AgainSettings) -> None:
    """Exports each servable, and prints the result."""
    bases = servables_in(Path(settings.folder))
    failed = []
    for base in bases:
        make_output_dir(base)
        try:
            version = again(base, settings.changed)
        except UserError as error:
            failed.append(base)
            print(f"{base}: not exported: {error}", flush=True)
        else:
            print(f"{base}: {f'exported {version}' if version else 'is of these versions already'}", flush=True)
    if failed:
        raise UserError(f"{len(failed)} of {len(bases)} servables were not exported again, as said above")


def run() -> None:
    """Runs the command."""
    run_main(main, AgainSettings)


if __name__ == "__main__":
    run()
