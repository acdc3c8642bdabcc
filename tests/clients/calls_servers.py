"""What clients of tensors do, programs that measure servers, and commands. Run by calls.py."""

import json
import subprocess


def ovms(at, kind):
    import ovmsclient

    return ovmsclient.make_grpc_client(at.server) if kind == "grpc" else ovmsclient.make_http_client(at.rest)


def ovms_grpc(at):
    return ovms(at, "grpc").predict({"text": at.texts}, "embedder", model_version=1).tolist()


def ovms_http(at):
    return ovms(at, "http").predict({"text": at.texts}, "embedder", model_version=1).tolist()


def ovms_status(at):
    return [found["state"] for found in ovms(at, "grpc").get_model_status("embedder", model_version=1).values()]


def ovms_zero(at):
    ovms(at, "grpc").predict({"text": at.texts}, "embedder")


def serving_predict(at):
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "embedder"
    text = request.inputs["text"]
    text.dtype, text.string_val[:] = 7, [text.encode() for text in at.texts]
    text.tensor_shape.dim.add(size=len(at.texts))
    with grpc.insecure_channel(at.server) as channel:
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, 60).outputs["embedding"]
    assert not answer.float_val or not answer.tensor_content
    width = answer.tensor_shape.dim[1].size
    numbers = list(answer.float_val) or memoryview(answer.tensor_content).cast("f").tolist()
    return [numbers[place : place + width] for place in range(0, len(numbers), width)]


# Commands


def curl(*arguments, body=None):
    command = ["curl", "--silent", "--show-error", "--http2", "--max-time", "60", *arguments]
    command += ["--data-binary", "@-"] * (body is not None)
    done = subprocess.run(command, input=body, capture_output=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


def curl_rest(at):
    url = f"http://{at.rest}/v1/models/embedder:predict"
    return json.loads(curl(url, body=json.dumps({"instances": at.texts}).encode()))["predictions"]


def curl_gateway(at):
    return json.loads(curl(f"{at.url}/embed", body=json.dumps({"inputs": at.texts}).encode()))
