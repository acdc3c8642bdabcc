"""How an inference encoder computes, and whether this machine can."""

import dataclasses
from typing import Self

import tensorflow as tf

from serving.choices import COMPUTE, PADDING, PERFORMANCE_HINTS
from serving.cpu import has_avx512, has_bfloat16, has_vnni
from serving.inference import onednn
from tfrecords.base.errors import UserError

_OTHER_CPU = ", or export with --other_cpu for one that can"


@dataclasses.dataclass(frozen=True)
class InferenceOptions:
    """Switches of the inference encoder.

    Attributes:
        compute: what matrix products are computed in: "float32", on any TensorFlow; "bfloat16" (layer norm and
            softmax stay float32 inside), "int8" (right on every x86) and "int8_vnni" (finer weights, for CPUs with
            avx512_vnni or avx_vnni only), all three by oneDNN; or "auto": bfloat16 where this machine's CPU has the
            instructions, float32 elsewhere.
        padding: "skipped": products run on real tokens only; "computed": a batch is a rectangle, padding goes through
            every product.
        other_cpu: bfloat16 or int8_vnni for another CPU, as this machine's may not run it: to be saved, untried.
        performance_hint: "latency": kernels that are fast for one short row; "throughput", of bfloat16 and int8: for
            batches and long rows, the steps' layer norms by oneDNN.

    Raises:
        UserError: an unknown choice, or "throughput" in float32.
    """

    compute: str = "float32"
    padding: str = "skipped"
    other_cpu: bool = False
    performance_hint: str = "latency"

    def __post_init__(self):
        known = {"compute": (*COMPUTE, "auto"), "padding": PADDING, "performance_hint": PERFORMANCE_HINTS}
        for name, choices in known.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(f"{name} '{value}' is none of {', '.join(choices)}")
        if self.performance_hint == "throughput" and self.compute == "float32":
            raise UserError("performance_hint 'throughput' is for bfloat16 and int8; float32 runs without oneDNN's ops")

    def resolved(self) -> Self:
        """Returns the same options with "auto" decided by the CPU of this machine."""
        if self.compute != "auto":
            return self
        return dataclasses.replace(self, compute="bfloat16" if has_bfloat16() else "float32")

    @property
    def dtype(self) -> tf.DType:
        """Of everything that is not 8-bit: the CPU that serves an int8 export may have no bfloat16 products."""
        return tf.float32 if self.is_quantized else tf.dtypes.as_dtype(self.compute)

    @property
    def is_quantized(self) -> bool:
        return self.compute in ("int8", "int8_vnni")


def check_runs_here(options: InferenceOptions) -> None:
    """Raises UserError where what the options say cannot run, unless it is for another CPU."""
    if options.other_cpu:
        return
    if options.compute == "bfloat16":
        _check_bfloat16()
    if options.compute == "int8_vnni" and not has_vnni():
        reason = "this CPU has neither avx512_vnni nor avx_vnni"
        raise UserError(f"int8_vnni cannot run here: {reason}; choose int8{_OTHER_CPU}")


def _check_bfloat16() -> None:
    """Raises UserError where bfloat16 cannot run.

    The CPU is asked first: without AVX-512 the product does not fail, it ends the process.
    """
    if not has_avx512():
        raise UserError(f"bfloat16 cannot run here: this CPU has no AVX-512; choose float32 or int8{_OTHER_CPU}")
    weights, bias = tf.zeros([32, 32], tf.bfloat16), tf.zeros([32], tf.bfloat16)
    onednn.require("bfloat16", lambda: onednn.matmul(weights, weights, bias))
