"""Calls oneDNN's fused kernels by the ops that TensorFlow's graph rewriter inserts.

oneDNN packs constant weights once. The rewriter accepts only a Const, copied for each signature at loading; these
functions take a variable, which must not change.
"""

import re
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework import op_def_library

from albert_tf.base import Tensor
from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import CPU_INFO, OWN_CPU_INFO, cpu_flags

# oneDNN's names of activation functions.
FUSED_ACTIVATIONS = {"gelu": "GeluApproximate", "gelu_erf": "GeluExact", "relu": "Relu"}
# What separates these kernels from those of the same op that take oneDNN's own memory layouts.
_NATIVE = tf.compat.v1.AttrValue(s=b"MklNameChangeOp")


def matmul(inputs, kernel, bias, function: str | None = None, residual=None) -> Tensor:
    """Computes function(inputs @ kernel + bias), or inputs @ kernel + bias + residual.

    All arguments are bfloat16, or all float32. `function` is a value of FUSED_ACTIVATIONS.
    """
    others = [name for name in (function, None if residual is None else "Add") if name]
    product = op_def_library.apply_op(
        "_MklNativeFusedMatMul",
        name="matmul",
        a=inputs,
        b=kernel,
        args=[bias] if residual is None else [bias, residual],
        fused_ops=["BiasAdd", *others],
        is_filter_const=True,
        transpose_a=False,
        transpose_b=False,
        epsilon=0.0,
        leakyrelu_alpha=0.0,
    )
    product.op._set_attr("_kernel", _NATIVE)
    return product


def batch_matmul(a: Tensor, b: Tensor, transpose_b: bool = False) -> Tensor:
    """Computes tf.matmul of float32 with oneDNN; without AVX-512 TensorFlow uses the slower Eigen."""
    product = op_def_library.apply_op(
        "_MklBatchMatMulV2", name="batch_matmul", x=a, y=b, adj_x=False, adj_y=transpose_b, grad_x=False, grad_y=False
    )
    product.op._set_attr("_kernel", _NATIVE)
    return product


def quantized_matmul(
    inputs, kernel, bias, bounds, dtype: tf.DType, function: str | None = None, residual=None, is_bias_const=True
) -> Tensor:
    """Computes the same as `matmul` from quint8 inputs and a qint8 kernel.

    `bounds` lists the smallest and largest representable number of the inputs, of each unit's weights and, if
    results are quint8, of the results.
    """
    quantized = dtype == tf.quint8
    fused = ["BiasAdd", function or ("Add" if residual is not None else None)]
    results = op_def_library.apply_op(
        "_QuantizedMatMul",
        name="quantized_matmul",
        device_inputs=[inputs, kernel, bias, *([] if residual is None else [residual])],
        host_inputs=bounds,
        Tdevice_outputs=[dtype],
        Thost_outputs=[tf.float32, tf.float32] if quantized else [],
        T1=inputs.dtype,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=dtype,
        transpose_a=False,
        transpose_b=False,
        is_weight_const=True,
        is_bias_const=is_bias_const,
        fused_ops=[name for name in fused if name] + ["Requantize" if quantized else "Dequantize"],
        input_quant_mode="SCALED",
        output_quant_mode="MIN_FIRST" if quantized else "SCALED",
        leakyrelu_alpha=0.0,
    )
    return tf.nest.flatten(results)[0]


def trial(compute: str, hidden_act: str, zero: Tensor) -> Tensor:
    """Returns a bool tensor: whether every oneDNN kernel of an export computes a tiny product correctly.

    `zero` is 0.0, but not a constant, which TensorFlow would fold.
    """
    function, eye = FUSED_ACTIVATIONS.get(hidden_act), tf.eye(8)
    inputs = tf.concat([4 * eye, 4 * eye[::-1]], axis=0) + zero
    # A kernel that moves each number to the right; with 5 added, the activation functions change none.
    matrix, moved, back = tf.roll(eye, 1, 1), tf.roll(inputs, 1, 1), tf.roll(inputs, -1, 1)
    if compute == "bfloat16":
        values, kernel, bias = (tf.cast(one, tf.bfloat16) for one in (inputs, matrix, tf.fill([8], 5.0)))
        pairs = [(matmul(values, kernel, bias, function), moved + 5)]
        pairs += [(matmul(values, kernel, bias, residual=values), moved + inputs + 5)]
    else:
        numbers = tf.bitcast(tf.cast(tf.round(inputs * (255 / 4)), tf.uint8), tf.quint8)
        kernel, bias = tf.bitcast(tf.cast(127 * matrix, tf.int8), tf.qint8), tf.fill([8], 5.0)
        bounds = [tf.constant(-4.0), tf.constant(4.0), tf.fill([8], -1.0), tf.fill([8], 1.0)]
        pairs = [(quantized_matmul(numbers, kernel, bias, bounds, tf.float32, residual=inputs), moved + inputs + 5)]
        if function is not None:
            bounds += [tf.constant(0.0), tf.constant(9.0)]
            rounded = quantized_matmul(numbers, kernel, bias, bounds, tf.quint8, function)
            pairs += [(tf.cast(tf.bitcast(rounded, tf.uint8), tf.float32) * (9 / 255), moved + 5)]
        pairs += [(batch_matmul(inputs[None], matrix[None]), moved[None])]
        pairs += [(batch_matmul(inputs[None], matrix[None], transpose_b=True), back[None])]
    right = [tf.reduce_max(tf.abs(tf.cast(found, tf.float32) - expected)) < 0.1 for found, expected in pairs]
    return tf.reduce_all(right)


def require(compute: str, hidden_act: str) -> None:
    """Raises UserError if this TensorFlow lacks a kernel, or a kernel computes wrong numbers."""
    signature = [tf.TensorSpec([], tf.float32)]
    function = tf.function(lambda zero: trial(compute, hidden_act, zero), signature, autograph=False)
    cause = None
    try:
        if function(0.0):
            return
        reason = "a kernel of this TensorFlow gives other numbers than those that exports were written for"
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        cause, name = error, re.search(r"_\w*MatMul\w*", str(error))
        reason = (
            f"this TensorFlow has not the kernel{f' {name[0]}' if name else 's'}; it needs a build for x86 with oneDNN"
        )
        reason += "" if compute == "bfloat16" else " and TF_ENABLE_ONEDNN_OPTS not 0"
    raise UserError(f"{compute} cannot run here: {reason}; choose float32") from cause


# Without these oneDNN's bfloat16 products end the process, hardware for bfloat16 or not.
BFLOAT16_NEEDS = ("avx512f", "avx512bw", "avx512vl", "avx512dq")


def can_run(compute: str, cpu_info: Path = OWN_CPU_INFO) -> bool:
    """Returns whether this CPU can run exports of that `compute`."""
    return compute != "bfloat16" or cpu_flags(cpu_info).issuperset(BFLOAT16_NEEDS)


class CpuCheck(tf.saved_model.experimental.TrackableResource):
    """Makes a SavedModel fail to load on machines where it would crash or compute wrong answers.

    Loading fails if the CPU lacks flags (unchecked without /proc/cpuinfo), or if `trial(0.0)` returns False because a
    kernel is missing or computes wrong numbers.
    """

    def __init__(self, compute: str, trial: Callable[[tf.Tensor], tf.Tensor]):
        super().__init__()
        # A closure holds the trial, since attributes of a resource are saved.
        self.compute, self.path, self._trial = compute, CPU_INFO, lambda zero: trial(zero)

    def _create_resource(self):
        # It stores nothing; a resource, because loaders initialize it.
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[])

    def _initialize(self):
        is_there = tf.size(tf.io.matching_files(self.path)) > 0
        text = tf.cond(is_there, lambda: tf.io.read_file(self.path), lambda: tf.constant(""))
        needs = BFLOAT16_NEEDS if self.compute == "bfloat16" else ()
        message = (
            f"this servable was exported for CPUs with {', '.join(needs)}, which this machine has not; "
            "export it with --compute=float32 or int8"
        )
        has_flags = (text == "") | tf.reduce_all([True, *(_has(text, flag) for flag in needs)])
        with tf.control_dependencies([tf.debugging.Assert(has_flags, [message])]):
            zero = tf.cast(tf.minimum(tf.strings.length(text), 0), tf.float32)
        message = (
            f"this TensorFlow computes {self.compute} otherwise than the one that this servable was exported with; "
            "export it again with this TensorFlow, or with --compute=float32"
        )
        tf.debugging.Assert(self._trial(zero), [message])


def _has(text: tf.Tensor, flag: str) -> tf.Tensor:
    return tf.strings.regex_full_match(text, rf"(?s)(.*\n)?flags\s*:[^\n]*\b{flag}\b.*")
