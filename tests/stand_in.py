"""A server that does no work: it serves one model named `default`, with one constant answer."""

from concurrent import futures

import grpc
import numpy as np

from serving.wire import protos
from serving.wire.tensors import fill_tensor

# Input name -> (DataType, rank); the batch first.
IDS = {"input_ids": (3, 2), "lengths": (3, 1)}
TEXT = {"text": (7, 1)}
Tensors = dict[str, tuple[int, int]]
PROBABILITIES: Tensors = {"probabilities": (1, 2)}


def constant_answer(probabilities=(0.25, 0.75), version=1):
    """Returns a serialized PredictResponse of one row."""
    response = protos.PredictResponse()
    response.model_spec.name = "default"
    response.model_spec.version.value = version
    fill_tensor(response.outputs["probabilities"], np.array([probabilities], dtype=np.float32))
    return response.SerializeToString()


def _describe(signatures):
    definitions = protos.SignatureDefMap()
    for key, (inputs, outputs) in signatures.items():
        signature = definitions.signature_def[key]
        signature.method_name = "tensorflow/serving/predict"
        for specs, infos in ((inputs, signature.inputs), (outputs, signature.outputs)):
            for name, (dtype, rank) in specs.items():
                infos[name].dtype = dtype
                for _ in range(rank):
                    infos[name].tensor_shape.dim.add(size=-1)
    response = protos.GetModelMetadataResponse()
    response.model_spec.name = "default"
    response.model_spec.version.value = 1
    response.metadata["signature_def"].value = definitions.SerializeToString()
    return response.SerializeToString()


def _status():
    response = protos.GetModelStatusResponse()
    response.model_version_status.add(version=1, state=30)
    return response.SerializeToString()


class StandIn(grpc.GenericRpcHandler):
    """A server with a constant answer: `with StandIn() as server: server.target`.

    `predict` takes and returns serialized messages.
    """

    def __init__(self, predict=None, inputs=IDS, port=0, threads=4, credentials=None, signatures=None):
        described = _describe(signatures or {"serving_default": (inputs, PROBABILITIES)})
        answer, metadata, status = constant_answer(), described, _status()
        self._methods = {
            protos.PREDICT: predict or (lambda request, context: answer),
            protos.GET_MODEL_METADATA: lambda request, context: metadata,
            protos.GET_MODEL_STATUS: lambda request, context: status,
        }
        # Two servers on one port would silently share its requests.
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
        self._server = grpc.server(futures.ThreadPoolExecutor(threads), handlers=[self], options=options)
        if credentials:
            port = self._server.add_secure_port(f"127.0.0.1:{port}", credentials)
        else:
            port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.target = f"127.0.0.1:{port}"

    def service(self, handler_call_details):
        method = self._methods.get(handler_call_details.method)
        return method and grpc.unary_unary_rpc_method_handler(method)

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exception):
        self._server.stop(grace=None).wait()
