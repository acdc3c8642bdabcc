"""Requests that a server answers to itself before a version is open to clients, so that none of them waits for what
TensorFlow does once for each signature and length: optimising graphs, packing weights, allocating."""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2, regression_pb2

from serving.exportable import CLASSIFY, PREDICT, REGRESS, Servable, Signature
from serving.samples import sample_inputs
from tfrecords.base.errors import UserError

# Where tensorflow_model_server looks in a version's folder.
FILE = "assets.extra/tf_serving_warmup_requests"


def write_warm_up(servable: Servable, version: Path, lengths: Sequence[int], names: Sequence[str]) -> int:
    """Writes a request of each length, in tokens, for each of the named signatures; returns how many.

    Raises:
        UserError: there is no such signature.
    """
    signatures = servable.signatures()
    unknown = [name for name in names if name not in signatures]
    if unknown:
        raise UserError(f"cannot warm up '{unknown[0]}'; the signatures are {', '.join(signatures)}")
    path = version / FILE
    path.parent.mkdir(exist_ok=True)
    requests = [(name, length) for name in names for length in lengths]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, length in requests:
            inputs = sample_inputs(servable, signatures[name], length)
            writer.write(_log(name, signatures[name], inputs).SerializeToString())
    return len(requests)


def _log(name: str, signature: Signature, inputs: dict) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    if signature.method == PREDICT:
        request: predict_pb2.PredictRequest = log.predict_log.request
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value, signature.inputs[key].dtype))
    else:
        kinds = {CLASSIFY: log.classify_log, REGRESS: log.regress_log}
        request: classification_pb2.ClassificationRequest | regression_pb2.RegressionRequest = kinds[
            signature.method
        ].request
        for example in inputs["inputs"]:
            request.input.example_list.examples.append(tf.train.Example.FromString(example))
    request.model_spec.signature_name = name
    return log
