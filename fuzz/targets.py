"""What is fuzzed: a function for each reader, which takes any bytes and returns, or raises an error it promises.

A target makes its function in a folder of its own, where the function may write. Whatever else a function raises is a
fault of the library, and so is an input that takes seconds or hundreds of megabytes (`fuzz.one`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz import light, readers, served

Check = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        make: Takes the folder and returns the function.
        promised: The errors that are answers.
        max_bytes: The longest input.
        json: The bytes before the JSON text of an input; None where inputs are no JSON.
        words: What the reader knows by name.
    """

    make: Callable[[Path], Check]
    promised: tuple[type[Exception], ...] = ()
    max_bytes: int = 4096
    json: int | None = None
    words: tuple[str, ...] = ()


TARGETS = {
    "tokenizers": Target(readers.tokenizers, readers.FOLDERS, json=0, max_bytes=2**14, words=readers.TOKENIZER_WORDS),
    "vocabularies": Target(readers.vocabularies, readers.FOLDERS),
    "safetensors": Target(readers.safetensors, readers.FOLDERS),
    "records": Target(readers.records, readers.FOLDERS),
    "configurations": Target(readers.configurations, readers.FOLDERS, json=0, words=readers.CONFIGURATION_WORDS),
    "settings": Target(readers.settings, readers.FOLDERS, json=1, words=readers.SETTING_WORDS),
    "tensors": Target(served.tensors, (ValueError, OverflowError)),
    "rest": Target(served.rest, served.STATUS, json=1, words=served.REST_WORDS),
    "text_protos": Target(served.text_protos, served.STATUS),
    "gateway": Target(served.gateway, json=1, words=served.GATEWAY_WORDS),
    "light_folders": Target(light.folders, readers.FOLDERS, json=0, words=light.FOLDER_WORDS),
    "light_requests": Target(light.requests, served.STATUS, json=1, words=light.REQUEST_WORDS),
}
