from collections.abc import Sequence

from serving.client.messages import Arrays
from serving.lite.model import LiteModel
from serving.lite.signatures import signatures_of
from serving.score.models import ModelSource, Refused, no_signature
from serving.wire.tensors import DT_STRING, type_number
from tfrecords.base.errors import UserError


class LiteScoringModel:
    """A `ScoringModel` of a LiteRT version."""

    def __init__(self, source: ModelSource):
        signatures = signatures_of(LiteModel(source.model, source.threads))
        if source.signature not in signatures:
            raise no_signature(source, signatures)
        signature = signatures[source.signature]
        self._call = signature.call
        self.inputs = tuple(sorted(signature.inputs))
        specs = {name: (type_number(dtype), len(shape)) for name, (dtype, shape) in signature.inputs.items()}
        self.wrong_inputs = tuple(name for name, spec in specs.items() if spec != (DT_STRING, 1))
        outputs = sorted(signature.outputs.items())
        self.outputs = {name: (type_number(dtype), len(shape)) for name, (dtype, shape) in outputs}

    def __call__(self, columns: Arrays, outputs: Sequence[str]) -> Arrays:
        try:
            answers = self._call(columns, lambda: None)
        except UserError as error:
            raise Refused(str(error)[:300]) from error
        return {name: answers[name] for name in outputs}
