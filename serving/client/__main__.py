"""Asks a server: what a model takes, how its versions stand, or an answer to texts or token ids."""

import json

import numpy as np
from absl import flags

from serving.client.channel import Connection
from serving.client.client import Client
from serving.client.messages import Arrays
from tfrecords.errors import UserError
from tfrecords.script import run_main

_TARGET = flags.DEFINE_string("target", "127.0.0.1:8500", "HOST:PORT of the server's gRPC port.")
_MODEL = flags.DEFINE_string("model", "default", "Name of the model.")
_VERSION = flags.DEFINE_integer("version", None, "Version of the model; absent: the newest.")
_LABEL = flags.DEFINE_string("label", None, "Version label instead of a version.")
_SIGNATURE = flags.DEFINE_string("signature", "serving_default", "Signature to call.")
_TEXT = flags.DEFINE_multi_string("text", [], "Text to answer; may be given several times.")
_IDS = flags.DEFINE_multi_string("ids", [], "Token ids to answer, comma-separated; may be given several times.")
_TIMEOUT = flags.DEFINE_float("timeout_s", 30.0, "Seconds to wait for the answer, retries included.")
_TLS = flags.DEFINE_bool("tls", False, "Whether the port speaks TLS.")
_ROOTS = flags.DEFINE_string("root_certificates", None, "PEM file of certificates to trust; implies --tls.")
_COMPRESSION = flags.DEFINE_string("compression", None, "gzip or deflate, for requests.")
_JSON = flags.DEFINE_bool("json", False, "Print the answer as JSON, one object a row.")


def main() -> None:
    connection = Connection(
        _TARGET.value, tls=_TLS.value, root_certificates=_ROOTS.value, compression=_COMPRESSION.value
    )
    settings = {"version": _VERSION.value, "label": _LABEL.value, "signature": _SIGNATURE.value}
    with Client(connection, _MODEL.value, timeout_s=_TIMEOUT.value, **settings) as client:
        if _TEXT.value and _IDS.value:
            raise UserError("both --text and --ids are given; a model takes one of them")
        if _TEXT.value:
            _print_answer(_TEXT.value, client.predict_text(_TEXT.value))
        elif _IDS.value:
            _print_answer(_IDS.value, client.predict_ids([_read_ids(row) for row in _IDS.value]))
        else:
            _print_model(client)


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


def _print_answer(questions: list[str], answer: Arrays) -> None:
    for number, question in enumerate(questions):
        row = {name: array[number] for name, array in answer.items()}
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
