"""REST answers with the same JSON text as TF Serving's, digit for digit."""

import base64
import itertools
import json
import math
from collections.abc import Callable, Mapping

import numpy as np
from google.protobuf import json_format

from serving.model_server.status import invalid_argument
from serving.wire.protos import (
    DATA_TYPES,
    ClassificationResult,
    GetModelMetadataResponse,
    GetModelStatusResponse,
    RegressionResult,
    SignatureDefMap,
)
from serving.wire.tensors import type_number

_BYTES_SUFFIX = "_bytes"
_INDENT = "    "
_FULL_DIGITS = {4: 9, 8: 17}
_SLICE = 2**13


def error(message: str) -> bytes:
    """Returns an error's body."""
    return _encoded('{\n    "error": ' + _string(message) + "\n}")


def predictions(outputs: Mapping[str, np.ndarray], row_format: bool) -> bytes:
    """Returns row format, {"predictions": [...]}, or column format, {"outputs": ...}."""
    if not outputs:
        raise invalid_argument("Cannot convert empty tensor map to JSON")
    outputs = {name: np.asarray(outputs[name]) for name in sorted(outputs)}
    return _encoded(_rows(outputs) if row_format else _columns(outputs))


def _rows(outputs: Mapping[str, np.ndarray]) -> str:
    size = None
    for name, value in outputs.items():
        if value.ndim == 0:
            raise invalid_argument(f"Tensor name: {name} has no shape information ")
        if size is not None and len(value) != size:
            raise invalid_argument(f"Tensor name: {name} has inconsistent batch size: {len(value)} expecting: {size}")
        size = len(value)
    texts = {name: _nested(name, value, lambda depth: ("[", ", ", "]"), stop=1) for name, value in outputs.items()}
    if len(texts) == 1:
        (only,) = texts.values()
        return '{\n    "predictions": [' + ", ".join(only) + "\n    ]\n}"
    keys = [_string(name) for name in texts]
    entries = [
        "\n        {\n" + ",\n".join(f"            {k}: {v}" for k, v in zip(keys, row)) + "\n        }"
        for row in zip(*texts.values())
    ]
    return '{\n    "predictions": [' + ",".join(entries) + "\n    ]\n}"


def _columns(outputs: Mapping[str, np.ndarray]) -> str:
    objects = len(outputs) > 1
    first_depth = 2 if objects else 1

    def brackets(depth: int) -> tuple[str, str, str]:
        inner = "\n" + _INDENT * (first_depth + depth + 1)
        return "[" + inner, "," + inner, "\n" + _INDENT * (first_depth + depth) + "]"

    texts = {name: _nested(name, value, brackets)[0] for name, value in outputs.items()}
    if not objects:
        (body,) = texts.values()
    else:
        body = "{\n" + ",\n".join(f"        {_string(n)}: {t}" for n, t in texts.items()) + "\n    }"
    return '{\n    "outputs": ' + body + "\n}"


def _nested(name: str, value: np.ndarray, brackets: Callable, stop: int = 0) -> list[str]:
    texts = _leaf_texts(name, value)
    for depth in range(value.ndim - 1, stop - 1, -1):
        start, separator, end = brackets(depth)
        size, count = value.shape[depth], math.prod(value.shape[:depth])
        if size == 0:
            texts = ["[]"] * count
        else:
            texts = [start + separator.join(texts[i : i + size]) + end for i in range(0, count * size, size)]
    return texts


def _leaf_texts(name: str, value: np.ndarray) -> list[str]:
    flat = value.reshape(-1)
    if value.dtype.kind in "OSU":
        if name.endswith(_BYTES_SUFFIX):
            return ['{ "b64": ' + _string(base64.b64encode(leaf).decode("ascii")) + " }" for leaf in flat.tolist()]
        return [_string(leaf.decode("utf-8", "surrogateescape")) for leaf in flat.tolist()]
    if value.dtype.kind == "b":
        return ["true" if leaf else "false" for leaf in flat.tolist()]
    if value.dtype.kind in "iu":
        return list(map(str, flat.tolist()))
    if value.dtype.kind == "f" or value.dtype.name == "bfloat16":
        return float_texts(flat if value.dtype.itemsize > 2 else flat.astype(np.float32))
    raise invalid_argument(f"Failed to write JSON value for tensor type: {DATA_TYPES[type_number(value.dtype)]}")


def float_texts(values: np.ndarray) -> list[str]:
    """Formats floats [n] with six significant digits if these restore the value, else 9 (float64: 17)."""
    # In slices: a single formatting of millions would hold Python's lock for seconds, and with it every request.
    slices = (values[begin : begin + _SLICE] for begin in range(0, len(values), _SLICE))
    return list(itertools.chain.from_iterable(map(_float_texts, slices)))


def _float_texts(values: np.ndarray) -> list[str]:
    numbers = values.tolist()
    texts = ("%.6g " * len(numbers) % tuple(numbers)).split()
    with np.errstate(over="ignore", invalid="ignore"):
        differing = np.array(texts, np.float64).astype(values.dtype) != values
    long_format = f"%.{_FULL_DIGITS[values.dtype.itemsize]}g"
    for index in np.flatnonzero(differing).tolist():
        texts[index] = long_format % numbers[index]
    return [text if "." in text or "e" in text else _WORDS.get(text) or text + ".0" for text in texts]


_WORDS = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def classification(result: ClassificationResult) -> bytes:
    """Returns labels and scores of each example."""
    if not result.classifications:
        raise invalid_argument("Cannot convert empty ClassificationResults to JSON")
    entries = []
    for classifications in result.classifications:
        scores = float_texts(np.array([entry.score for entry in classifications.classes], np.float32))
        pairs = (f"[{_string(e.label)}, {score}]" for e, score in zip(classifications.classes, scores))
        entries.append("[" + ", ".join(pairs) + "]")
    return _encoded('{\n    "results": [' + ", ".join(entries) + "\n    ]\n}")


def regression(result: RegressionResult) -> bytes:
    """Returns one value per example."""
    if not result.regressions:
        raise invalid_argument("Cannot convert empty RegressionResults to JSON")
    values = float_texts(np.array([entry.value for entry in result.regressions], np.float32))
    return _encoded('{\n    "results": [' + ", ".join(values) + "]\n}")


def status(response: GetModelStatusResponse) -> bytes:
    """Returns the states of a model's versions."""
    return _encoded(_message(response) + "\n")


def metadata(response: GetModelMetadataResponse) -> bytes:
    """Returns a model's signatures."""
    signatures = SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    return _encoded(
        '{\n"model_spec":' + _message(response.model_spec) + ',\n"metadata": {"signature_def": '
        + _message(signatures) + "}\n}\n"
    )  # fmt: skip


def _message(message) -> str:
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, indent=1
    )


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # Half a surrogate pair, which UTF-8 has no bytes for.
        return text.encode("utf-8", "replace")
