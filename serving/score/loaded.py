from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizers' ops)

from serving.client.messages import Arrays
from serving.score.models import ModelSource, Refused, no_signature
from tfrecords.base.errors import UserError


class LoadedModel:
    """A `ScoringModel` that runs in this process."""

    def __init__(self, source: ModelSource):
        if source.threads:
            tf.config.threading.set_intra_op_parallelism_threads(source.threads)
        try:
            self._model = tf.saved_model.load(source.model)
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise UserError(f"cannot load the SavedModel '{source.model}': {_first_line(error)}") from error
        if source.signature not in self._model.signatures:
            raise no_signature(source, self._model.signatures)
        self._call = self._model.signatures[source.signature]
        specs = self._call.structured_input_signature[1]
        self.inputs = tuple(sorted(specs))
        self.wrong_inputs = tuple(n for n, s in specs.items() if s.dtype != tf.string or len(s.shape) != 1)
        self.outputs = {
            name: (spec.dtype.as_datatype_enum, -1 if spec.shape.rank is None else spec.shape.rank)
            for name, spec in sorted(self._call.structured_outputs.items())
        }

    def __call__(self, columns: Arrays, outputs: Sequence[str]) -> Arrays:
        try:
            answers = self._call(**{name: tf.constant(values) for name, values in columns.items()})
        except tf.errors.InvalidArgumentError as error:
            raise Refused(_first_line(error)) from error
        return {name: answers[name].numpy() for name in outputs}


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    nodes = [number for number, line in enumerate(lines) if "[[{{node" in line]
    return lines[max(nodes[0] - 1, 0) if nodes else 0].strip()[:300]
