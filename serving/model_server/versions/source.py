"""Model versions on disk."""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from serving.wire.protos import ModelConfig

_LOG = logging.getLogger(__name__)
_INT64_MAX = 2**63 - 1
_REPEAT_SECONDS = 60.0
# Files of a folder that training wrote, or of a checkpoint that was downloaded.
_MODEL_FILES = {"model.keras", "task.json", "albert_config.json", "config.json", "model.safetensors"}

Aspire = Callable[[str, Mapping[int, str]], None]
# What was logged within the last _REPEAT_SECONDS, and when.
_logged: dict[str, float] = {}


def _complain(level: int, message: str) -> None:
    # Logs a message once a minute: what a poll finds, the next one will find again.
    now = time.monotonic()
    for old in [one for one, when in _logged.items() if now - when >= _REPEAT_SECONDS]:
        del _logged[old]
    if message not in _logged:
        _logged[message] = now
        _LOG.log(level, "%s", message)


def list_versions(base_path: str) -> dict[int, str]:
    """Returns folders by version number, for children named by a decimal int64 ("00000123" is 123)."""
    versions: dict[int, str] = {}
    for child in sorted(Path(base_path).iterdir()):
        if not re.fullmatch(r"\d+", child.name, re.ASCII) or int(child.name) > _INT64_MAX:
            continue
        if int(child.name) in versions:
            _complain(logging.WARNING, f"Duplicate version directories under {base_path}: {child.name} wins")
        versions[int(child.name)] = str(child)
    return versions


def aspired_versions(model: ModelConfig) -> dict[int, str]:
    """Returns the versions that the model's policy selects, by default the latest."""
    versions = list_versions(model.base_path)
    policy = model.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "specific":
        for missing in sorted(set(policy.specific.versions) - set(versions)):
            _complain(
                logging.WARNING,
                f"Version {missing} of servable {model.name}, which was requested as specific, was not found under "
                f"{model.base_path}",
            )
        aspired = set(policy.specific.versions) & set(versions)
    elif choice == "all":
        aspired = set(versions)
    else:
        count = (policy.latest.num_versions or 1) if choice == "latest" else 1
        aspired = set(sorted(versions)[-count:])
    return {number: versions[number] for number in aspired}


class StoragePathSource:
    """Polls the models' base paths and calls `aspire` with their versions."""

    def __init__(self, aspire: Aspire, poll_wait_seconds: float):
        """`poll_wait_seconds`: pause between polls; 0 polls on configuration changes only, negative never."""
        self._aspire = aspire
        self._wait = poll_wait_seconds
        self._models: dict[str, ModelConfig] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll_for_ever, name="file-system-poll", daemon=True)
        if poll_wait_seconds > 0:
            self._thread.start()

    def configure(self, models: Mapping[str, ModelConfig]) -> None:
        with self._lock:
            removed = set(self._models) - set(models)
            self._models = dict(models)
            for name in removed:
                self._aspire(name, {})
            if self._wait >= 0:
                self._poll_all()

    def close(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _poll_for_ever(self) -> None:
        while not self._stopped.wait(self._wait):
            try:
                with self._lock:
                    self._poll_all()
            except Exception:
                # Whatever the disk did, the next poll may find it well again.
                _LOG.exception("Polling for versions failed")

    def _poll_all(self) -> None:
        for name, model in self._models.items():
            try:
                versions = aspired_versions(model)
            except OSError as error:
                # What is loaded goes on serving: a share that is away for a moment must not unload a model.
                _complain(
                    logging.ERROR,
                    "FileSystemStoragePathSource: could not find base path "
                    f"{model.base_path} for servable {name}: {error.strerror}",
                )
                continue
            except Exception:
                # Whatever is wrong with one model, the next ones are looked for.
                _LOG.exception("Polling for versions of servable %s failed", name)
                continue
            if not versions:
                message = f"No versions of servable {name} found under base path {model.base_path}."
                _complain(logging.WARNING, f"{message} {_advice(model.base_path)}")
            self._aspire(name, versions)


def _advice(base_path: str) -> str:
    files = {path.name for path in Path(base_path).iterdir()}
    if "saved_model.pb" in files:
        return "It is a version itself: move its files into a subfolder '1', or name its parent folder."
    if files & _MODEL_FILES:
        command = (
            f"python -m serving.export --model={base_path} --output_dir=models/{Path(base_path).name} --inputs=text"
        )
        return f"It is a model that is not exported: '{command}' writes what a server reads."
    return "Did you forget to name your leaf directory as a number (eg. '/1/')?"
