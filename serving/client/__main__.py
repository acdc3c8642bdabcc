"""Asks a server: what a model takes, how its versions stand, or an answer to texts or token ids."""

import json

import numpy as np
from absl import flags

from serving.client.channel import Connection
from serving.client.client import Client
from serving.client.messages import Arrays, text_input
from serving.client.signatures import Signature
from serving.wire.tensors import DT_STRING, numpy_type
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_next

_TARGET = flags.DEFINE_string("target", "127.0.0.1:8500", "HOST:PORT of the server's gRPC port.")
_MODEL = flags.DEFINE_string("model", "default", "Name of the model.")
_VERSION = flags.DEFINE_integer("version", None, "Version of the model; absent: the newest.")
_LABEL = flags.DEFINE_string("label", None, "Version label instead of a version.")
_SIGNATURE = flags.DEFINE_string("signature", "serving_default", "Signature to call.")
_TEXT = flags.DEFINE_multi_string("text", [], "Text to answer; may be given several times.")
_IDS = flags.DEFINE_multi_string("ids", [], "Token ids to answer, comma-separated; may be given several times.")
_INPUT = flags.DEFINE_multi_string(
    "input", [], "NAME=VALUE of an input, for models that take several: --input=question=... --input=context=..."
)
_TIMEOUT = flags.DEFINE_float("timeout_s", 30.0, "Seconds to wait for the answer, retries included.")
_TLS = flags.DEFINE_bool("tls", False, "Whether the port speaks TLS.")
_ROOTS = flags.DEFINE_string("root_certificates", None, "PEM file of certificates to trust; implies --tls.")
_COMPRESSION = flags.DEFINE_string("compression", None, "gzip or deflate, for requests.")
_JSON = flags.DEFINE_bool("json", False, "Print the answer as JSON, one object a row.")

_HEADLINES = ("answer", "choice", "label", "labels", "value", "words")


def main() -> None:
    connection = Connection(
        _TARGET.value, tls=_TLS.value, root_certificates=_ROOTS.value, compression=_COMPRESSION.value
    )
    settings = {"version": _VERSION.value, "label": _LABEL.value, "signature": _SIGNATURE.value}
    with Client(connection, _MODEL.value, timeout_s=_TIMEOUT.value, **settings) as client:
        if sum(map(bool, (_TEXT.value, _IDS.value, _INPUT.value))) > 1:
            raise UserError("--text, --ids and --input are given together; choose one of them")
        if _INPUT.value:
            inputs = _read_inputs(client.signature(), _INPUT.value)
            rows = len(next(iter(inputs.values())))
            _print_answer([f"row {number}" for number in range(rows)], client.predict(inputs))
        elif _TEXT.value:
            if text_input(client.signature()) is None:
                raise UserError(f"the model takes {client.signature()}; give each by --input=NAME=VALUE")
            _print_answer(_TEXT.value, client.predict_text(_TEXT.value))
        elif _IDS.value:
            _print_answer(_IDS.value, client.predict_ids([_read_ids(row) for row in _IDS.value]))
        else:
            _print_model(client)


def _read_inputs(signature: Signature, items: list[str]) -> dict[str, np.ndarray]:
    """NAME=VALUE items as arrays of the signature's types.

    A name given several times is several rows; of an input with an axis more, several entries of one row. A name given
    once holds for all rows.
    """
    values: dict[str, list] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or name not in signature.inputs:
            raise UserError(f"--input={item} is not NAME=VALUE of an input; the model takes {signature}")
        values.setdefault(name, []).append(_read_value(item, value, signature.inputs[name].dtype))
    if missing := [name for name in signature.inputs if name not in values]:
        raise UserError(f"--input={missing[0]}=... must be given; the model takes {signature}")
    rows = {name: [value] if len(signature.inputs[name].shape or ()) > 1 else value for name, value in values.items()}
    count = max(map(len, rows.values()))
    for name, value in rows.items():
        if len(value) not in (1, count):
            raise UserError(f"--input={name}=... is given {len(value)} times, another input {count} times")
    return {
        name: np.array(value * (count if len(value) == 1 else 1), numpy_type(signature.inputs[name].dtype))
        for name, value in rows.items()
    }


def _read_value(item: str, value: str, dtype: int):
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


def _print_model(client: Client) -> None:
    for status in client.status():
        print(f"version {status.version}: {status.state}" + (f", {status.error}" if status.error else ""))
    for name, signature in client.metadata().items():
        print(f"signature {name}")
        for heading, specs in (("takes", signature.inputs), ("gives", signature.outputs)):
            for spec in specs.values():
                print(f"  {heading}  {spec}")
    question = "--ids=2,10,3" if text_input(client.signature()) is None else "--text='...'"
    say_next(f"python -m serving.client --target={_TARGET.value} --model={_MODEL.value} {question}")


def _print_answer(questions: list[str], answer: Arrays) -> None:
    for number, question in enumerate(questions):
        # What a reader looks for first; the numbers behind it come after.
        names = sorted(answer, key=lambda name: (name not in _HEADLINES, name))
        row = {name: answer[name][number] for name in names}
        if _JSON.value:
            print(json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False))
            continue
        print(question)
        for name, value in row.items():
            print(f"  {name}  {_readable(value)}")


def _plain(value):
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _readable(value) -> str:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.array2string(value, precision=4, threshold=20, separator=", ")
    return str(_plain(value))


def run() -> None:
    run_main(main)


if __name__ == "__main__":
    run()
