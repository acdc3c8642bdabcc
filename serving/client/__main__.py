"""Sends texts or token ids to a model server; without any, shows what a model takes.

python -m serving.client --target=127.0.0.1:8500 --model=sst2 --text="A fine film."
python -m serving.client --model=sst2
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.client.client import Client
from serving.client.messages import Arrays, Signature, plain, text_input
from serving.client.settings import ModelSettings
from serving.wire.tensors import DT_STRING, numpy_type
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_next
from tfrecords.base.settings import setting

_HEADLINES = ("answer", "choice", "label", "labels", "value", "words")


@dataclass(frozen=True, kw_only=True)
class ClientSettings(ModelSettings):
    """The command's flags."""

    text: tuple[str, ...] = setting((), help="Text to send; may be given several times.")
    ids: tuple[str, ...] = setting((), help="Token ids to send, comma-separated; may be given several times.")
    input: tuple[str, ...] = setting(
        (), help="NAME=VALUE of an input, for models that take several: --input=question=... --input=context=..."
    )
    json: bool = setting(False, help="Print the answer as JSON, one object a row.")


def main(settings: ClientSettings) -> None:
    """Prints the answer or, without inputs, the model's description."""
    with Client(**settings.asked()) as client:
        if sum(map(bool, (settings.text, settings.ids, settings.input))) > 1:
            raise UserError("--text, --ids and --input are given together; choose one of them")
        if settings.input:
            inputs = _read_inputs(client.signature(), settings.input)
            rows = len(next(iter(inputs.values())))
            _print_answer([f"row {number}" for number in range(rows)], client.predict(inputs), settings.json)
        elif settings.text:
            if text_input(client.signature()) is None:
                raise UserError(f"the model takes {client.signature()}; give each by --input=NAME=VALUE")
            _print_answer(settings.text, client.predict_text(settings.text), settings.json)
        elif settings.ids:
            answer = client.predict_ids([_read_ids(row) for row in settings.ids])
            _print_answer(settings.ids, answer, settings.json)
        else:
            _print_model(client, f"--target={settings.target} --model={settings.model}")


def _read_inputs(signature: Signature, items: tuple[str, ...]) -> Arrays:
    """Converts NAME=VALUE items to arrays of the signature's types; a repeated name appends to its array."""
    values: dict[str, list] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or name not in signature.inputs:
            raise UserError(f"--input={item} is not NAME=VALUE of an input; the model takes {signature}")
        values.setdefault(name, []).append(_read_value(item, value, signature.inputs[name].dtype))
    rows = {name: [row] if len(signature.inputs[name].shape or ()) > 1 else row for name, row in values.items()}
    count = max(map(len, rows.values()))
    return {
        name: np.array(row * count if len(row) == 1 else row, numpy_type(signature.inputs[name].dtype))
        for name, row in rows.items()
    }


def _read_value(item: str, value: str, dtype: int) -> Any:
    if dtype == DT_STRING:
        return value.encode()
    try:
        return json.loads(value)
    except ValueError as error:
        raise UserError(f"--input={item} is not a number, or a list of numbers in brackets") from error


def _read_ids(row: str) -> list[int]:
    try:
        return [int(item) for item in row.split(",")]
    except ValueError as error:
        raise UserError(f"--ids={row} is not a comma-separated list of whole numbers") from error


def _print_model(client: Client, flags: str) -> None:
    for status in client.status():
        print(f"version {status.version}: {status.state}" + (f", {status.error}" if status.error else ""))
    for name, signature in client.metadata().items():
        print(f"signature {name}")
        for heading, specs in (("takes", signature.inputs), ("gives", signature.outputs)):
            for spec in specs.values():
                print(f"  {heading}  {spec}")
    question = "--ids=2,10,3" if text_input(client.signature()) is None else "--text='...'"
    say_next(f"python -m serving.client {flags} {question}")


def _print_answer(questions: list[str] | tuple[str, ...], answer: Arrays, as_json: bool) -> None:
    for number, question in enumerate(questions):
        # The most useful outputs come first, then the numbers.
        names = sorted(answer, key=lambda name: (name not in _HEADLINES, name))
        row = {name: answer[name][number] for name in names}
        if as_json:
            print(json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False))
            continue
        print(question)
        for name, value in row.items():
            print(f"  {name}  {_readable(value)}")


def _readable(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.array2string(value, precision=4, threshold=20, separator=", ")
    return str(plain(value))


def run() -> None:
    """Runs the command."""
    run_main(main, ClientSettings)


if __name__ == "__main__":
    run()
