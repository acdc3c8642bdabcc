"""REST bodies of classify and regress: JSON to tf.Examples."""

from collections.abc import Callable
from typing import Any

from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow_serving.apis import input_pb2

from serving.model_server.json_values import as_bytes, format_error, is_base64, json_type
from serving.model_server.status import invalid_argument

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def examples_input(document: dict[str, Any]) -> input_pb2.Input:
    """The body of classify and regress: "examples", and "context" whose features go to all. Raises StatusError."""
    result = input_pb2.Input()
    target = result.example_list
    if "context" in document:
        target = result.example_list_with_context
        _fill_example(document["context"], target.context)
    if "examples" not in document:
        raise format_error(document, "When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if type(examples) is not list:
        raise format_error(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise format_error(document, "'examples' value is an empty array")
    for example in examples:
        _fill_example(example, target.examples.add())
    return result


def _fill_example(value: Any, example: example_pb2.Example) -> None:
    if type(value) is not dict:
        raise invalid_argument(f"Example must be JSON object but got JSON {json_type(value)}")
    example.SetInParent()
    for name, content in value.items():
        try:
            feature = example.features.feature[name]
        except UnicodeEncodeError as error:
            raise invalid_argument(f"Feature name {name!r} is not UTF-8") from error
        for leaf in content if type(content) is list else (content,):
            _add_to_feature(name, leaf, feature)


def _add_to_feature(name: str, value: Any, feature: feature_pb2.Feature) -> None:
    kind, convert = _FEATURE_KINDS.get(type(value), (None, None))
    if kind is None or (type(value) is dict and not is_base64(value)):
        raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {json_type(value)}")
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise invalid_argument(
            f"Unexpected element type in feature: {name} expecting type: {present.removesuffix('_list')}"
        )
    if kind == "int64_list" and not _INT64_MIN <= value <= _INT64_MAX:
        raise invalid_argument(f"Feature: {name} has uint64 element. Only int64 is supported.")
    getattr(feature, kind).value.append(convert(value))


_FEATURE_KINDS: dict[type, tuple[str, Callable]] = {
    bool: ("int64_list", int),
    int: ("int64_list", int),
    float: ("float_list", float),
    str: ("bytes_list", as_bytes),
    dict: ("bytes_list", as_bytes),
}
