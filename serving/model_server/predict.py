"""Predict: named tensors in, named tensors out."""

from collections.abc import Iterable, Mapping, Sequence

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.model_server.servable import Servable
from serving.model_server.status import FAILED_PRECONDITION, StatusError, invalid_argument
from serving.wire.tensors import checked_shape, has_numpy_type, to_numpy

DEFAULT_SIGNATURE = "serving_default"
METHODS = ("tensorflow/serving/predict", "tensorflow/serving/classify", "tensorflow/serving/regress")


def predict(
    servable: Servable,
    signature_name: str,
    inputs: Mapping[str, tensor_pb2.TensorProto | np.ndarray],
    output_filter: Sequence[str] = (),
    timeout: float | None = None,
    check_method: bool = False,
) -> tuple[str, dict[str, np.ndarray]]:
    """Runs one signature.

    Args:
      servable: the model version.
      signature_name: empty means serving_default.
      inputs: input alias -> tensor of any shape.
      output_filter: the outputs to compute, all when empty.
      timeout: seconds.
      check_method: refuse signatures whose method is none of TF Serving's.
    Returns the signature's resolved name and output alias -> array.
    Raises StatusError as the server's contract says, or tf.errors.OpError from the graph.
    """
    name = signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(name)
    if signature is None:
        raise StatusError(FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    if check_method and signature.method_name not in METHODS:
        raise invalid_argument(f"Expected prediction signature method_name to be one of {{{', '.join(METHODS)}}}. "
                               f"Was: {signature.method_name}")  # fmt: skip
    feeds = _feeds(signature, inputs)
    aliases = _outputs(signature, output_filter)
    values = servable.run("Predict", feeds, [signature.outputs[alias].name for alias in aliases], timeout)
    return name, dict(zip(aliases, values, strict=True))


def _feeds(signature: meta_graph_pb2.SignatureDef, inputs: Mapping) -> dict[str, np.ndarray]:
    defaults = signature.defaults
    required = set(signature.inputs) - set(defaults)
    if len(inputs) > len(signature.inputs) or len(inputs) < len(required):
        sent, expected = set(inputs), set(signature.inputs)
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(expected)} len({_names(sent)}) != "
            f"len({_names(expected)}). Sent extra: {_names(sent - expected)}. "
            f"Missing but required: {_names(required - sent)}."
        )
    feeds = {}
    for alias, info in sorted(signature.inputs.items()):
        value = inputs.get(alias) if alias in inputs else None
        if value is not None:
            feeds[info.name] = value if isinstance(value, np.ndarray) else _parse_tensor(alias, value)
        elif alias in defaults:
            feeds[info.name] = _to_numpy(defaults[alias])
        else:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and no default value "
                f"provided. Inputs expected to be in the request {_names(inputs)}, or default input alias set: "
                + ",".join(sorted(defaults))
            )
    return feeds


def _parse_tensor(alias: str, tensor: tensor_pb2.TensorProto) -> np.ndarray:
    try:
        return _to_numpy(tensor)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        # TensorFlow has no NumPy type for some numbers of DataType, and says so with each of these.
        raise invalid_argument(f"tensor parsing error: {alias}") from error


def _to_numpy(tensor: tensor_pb2.TensorProto) -> np.ndarray:
    if has_numpy_type(tensor.dtype):
        return to_numpy(tensor, ml_dtypes.bfloat16)
    # Quantized types and those of less than 16 bits, which TensorFlow alone knows.
    checked_shape(tensor)
    return tf.make_ndarray(tensor)


def _outputs(signature: meta_graph_pb2.SignatureDef, output_filter: Sequence[str]) -> list[str]:
    aliases: list[str] = []
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid_argument(f"output tensor alias not found in signature: {alias} "
                                   f"Outputs expected to be in the set {_names(signature.outputs)}.")  # fmt: skip
        if alias in aliases:
            raise invalid_argument(f"duplicate output tensor alias: {alias}")
        aliases.append(alias)
    return aliases or sorted(signature.outputs)


def _names(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
