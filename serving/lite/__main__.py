"""Answers texts with a LiteRT version, in this process and without TensorFlow.

python -m serving.lite --folder=models/tickets "Where is my parcel?"
python -m serving.lite --folder=models/reader --text="Who came?" --second="Anna Bell came at noon."
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.lite.model import LiteModel
from tfrecords.base.errors import refuse
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting


@dataclass(frozen=True, kw_only=True)
class AskSettings(CheckedSettings):
    """The command's flags."""

    folder: str = setting(help="folder of a LiteRT version, or of its versions")
    text: tuple[str, ...] = setting((), help="text to answer, also without --text=; may be given several times")
    second: tuple[str, ...] = setting((), help="second text of each pair; for questions, the contexts")
    prompt_name: str = setting("", help="prompt that precedes texts; empty: the default one")
    json: bool = setting(False, help="print answers as JSON, one a line")

    def __post_init__(self):
        super().__post_init__()
        refuse({
            'give a text to answer, such as "Where is my parcel?"':
                not self.text,
            "--prompt_name is for single texts; leave out --second":
                self.prompt_name and self.second,
        })  # fmt: skip


def main(settings: AskSettings) -> None:
    """Prints an answer to each text."""
    model, texts = LiteModel(settings.folder), list(settings.text)
    if settings.prompt_name:
        answers = model.encode(texts, prompt_name=settings.prompt_name)
    else:
        answers = model.predict(texts, list(settings.second) or None)
    for text, answer in zip(texts, answers):
        if settings.json:
            print(json.dumps(answer.tolist() if isinstance(answer, np.ndarray) else answer, ensure_ascii=False))
            continue
        print(text)
        for name, value in answer.items() if isinstance(answer, dict) else [("", answer)]:
            print(f"  {name}{'  ' * bool(name)}{_readable(value)}")


def _readable(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, threshold=20, separator=", ")
    return json.dumps(value, ensure_ascii=False)


def run() -> None:
    """Runs the command; an argument that is no flag is a text."""
    sys.argv[1:] = [one if one.startswith("-") else f"--text={one}" for one in sys.argv[1:]]
    run_main(main, AskSettings)


if __name__ == "__main__":
    run()
