"""The same ALBERT in OpenVINO, ONNX Runtime and PyTorch, made through transformers: `pip install '.[peers]'`."""

import importlib.util
import logging
import shutil
from pathlib import Path

import numpy as np

from albert_tf.checkpoints import save_huggingface
from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import bfloat16_flags

PACKAGES = ("torch", "transformers", "openvino", "nncf", "onnxruntime", "onnx")


def check_installed() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the peers lack {', '.join(missing)}; install them by: pip install '.[peers]'")


def make_peers(encoder, folder: Path, threads: int, calibration: list[list[int]]) -> dict:
    """Functions of (input_ids, mask), int64 [batch, length], giving the pooled output, by name.

    OpenVINO gets eager attention: on a CPU it runs that one faster than scaled_dot_product_attention. Its 8-bit form is
    NNCF's post-training quantization, with ranges from the rows of token ids in `calibration`. What this CPU has no
    instructions for is left out. threads: 0 for each one's own default, and then without PyTorch, which compiles long.
    """
    check_installed()
    import nncf
    import onnxruntime
    import openvino
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _convert(encoder, folder)
    core, model = openvino.Core(), openvino.Core().read_model(folder / "albert.xml")
    rows = [{"input_ids": np.array([row]), "attention_mask": np.ones([1, len(row)], np.int64)} for row in calibration]
    nncf.set_log_level(logging.ERROR)
    quantized = nncf.quantize(model, nncf.Dataset(rows), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(rows))
    peers = {}
    versions = [("OpenVINO fp32", model, "f32"), ("OpenVINO int8", quantized, "f32")]
    if bfloat16_flags():
        versions[1:] = [("OpenVINO bf16", model, "bf16"), ("OpenVINO int8", quantized, "bf16")]
    for name, version, precision in versions:
        settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
        }
        peers[name] = _openvino(core.compile_model(version, "CPU", settings))
    quantize_dynamic(folder / "albert.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)
    for name, file in (("ONNX Runtime fp32", "albert.onnx"), ("ONNX Runtime int8", "int8.onnx")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
        peers[name] = _onnxruntime(session)
    return peers | _pytorch(folder, threads)


def _pytorch(folder: Path, threads: int) -> dict:
    """`torch.compile` for any length, which needs a C++ compiler; in bfloat16 where the CPU has it."""
    import torch
    import transformers

    if shutil.which("g++") is None:
        print("left out: PyTorch: torch.compile needs g++")
        return {}
    if not threads:
        return {}
    torch.set_num_threads(threads)
    name, dtype = ("PyTorch bf16", torch.bfloat16) if bfloat16_flags() else ("PyTorch fp32", torch.float32)
    model = transformers.AlbertModel.from_pretrained(folder / "huggingface", dtype=dtype).eval()
    compiled = torch.compile(model, dynamic=True)

    @torch.inference_mode()
    def run(ids, mask):
        return compiled(torch.from_numpy(ids), torch.from_numpy(mask)).pooler_output.float().numpy()

    return {name: run}


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
