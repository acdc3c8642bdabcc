"""The same ALBERT in OpenVINO and ONNX Runtime, made through transformers and torch: `pip install '.[peers]'`."""

import importlib.util
from pathlib import Path

from albert_tf.checkpoints import save_huggingface
from tfrecords.base.errors import UserError

PACKAGES = ("torch", "transformers", "openvino", "onnxruntime", "onnx")


def check_installed() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the peers lack {', '.join(missing)}; install them by: pip install '.[peers]'")


def make_peers(encoder, folder: Path, threads: int) -> dict:
    """Functions of (input_ids, mask), int64 [batch, length], giving the pooled output, by name.

    OpenVINO gets eager attention: on a CPU it runs that one faster than scaled_dot_product_attention.
    """
    check_installed()
    import onnxruntime
    import openvino
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _convert(encoder, folder)
    core, peers = openvino.Core(), {}
    for name, precision in (("OpenVINO fp32", "f32"), ("OpenVINO bf16", "bf16")):
        settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
        }
        peers[name] = _openvino(core.compile_model(core.read_model(folder / "albert.xml"), "CPU", settings))
    quantize_dynamic(folder / "albert.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)
    for name, file in (("ONNX Runtime fp32", "albert.onnx"), ("ONNX Runtime int8", "int8.onnx")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
        peers[name] = _onnxruntime(session)
    return peers


def _openvino(compiled):
    request = compiled.create_infer_request()
    return lambda ids, mask: request.infer({"input_ids": ids, "attention_mask": mask})[1]


def _onnxruntime(session):
    return lambda ids, mask: session.run(["pooled"], {"input_ids": ids, "attention_mask": mask})[0]


def _convert(encoder, folder: Path) -> None:
    import openvino
    import torch
    import transformers

    save_huggingface(encoder, folder / "huggingface")
    model = transformers.AlbertModel.from_pretrained(folder / "huggingface", attn_implementation="eager").eval()

    class Outputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            outputs = self.model(input_ids=input_ids, attention_mask=attention_mask)
            return outputs.last_hidden_state, outputs.pooler_output

    ids = torch.ones(2, 16, dtype=torch.long)
    free = openvino.PartialShape([-1, -1])
    with torch.no_grad():
        converted = openvino.convert_model(Outputs(), example_input=(ids, ids), input=[free, free])
    for port, name in zip(converted.inputs, ("input_ids", "attention_mask"), strict=True):
        port.get_tensor().set_names({name})
    openvino.save_model(converted, folder / "albert.xml", compress_to_fp16=False)
    axes = {0: "batch", 1: "length"}
    torch.onnx.export(
        Outputs(),
        (ids, ids),
        str(folder / "albert.onnx"),
        input_names=["input_ids", "attention_mask"],
        output_names=["sequence", "pooled"],
        dynamic_axes={"input_ids": axes, "attention_mask": axes, "sequence": axes, "pooled": {0: "batch"}},
        dynamo=False,
        opset_version=17,
    )
