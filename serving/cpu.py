"""CPU features that exports need, and an export's check for them."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tfrecords.base.cpu import CPU_INFO, OWN_CPU_INFO, cpu_flags

# Flags that exports cannot be served without, by compute: all of one of the sets. Without them oneDNN's bfloat16
# products end the process, hardware for bfloat16 or not, and its 8-bit ones saturate.
NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "bfloat16": (("avx512f", "avx512bw", "avx512vl", "avx512dq"),),
    "int8_vnni": (("avx512_vnni",), ("avx_vnni",)),
}


def describe_needs(compute: str) -> str:
    """Returns the required CPU flags as text."""
    return " or ".join(", ".join(flags) for flags in NEEDS.get(compute, ()))


def can_run(compute: str, cpu_info: Path = OWN_CPU_INFO) -> bool:
    """Returns whether this CPU can run exports of that `compute`."""
    found = cpu_flags(cpu_info)
    return any(found.issuperset(flags) for flags in NEEDS.get(compute, ((),)))


def has_avx512(cpu_info: Path = OWN_CPU_INFO) -> bool:
    """Returns whether bfloat16 products work; without AVX-512 they abort the process."""
    return can_run("bfloat16", cpu_info)


def has_vnni(cpu_info: Path = OWN_CPU_INFO) -> bool:
    """Returns whether the CPU adds 8-bit products in 32 bits; otherwise sums can overflow."""
    return can_run("int8_vnni", cpu_info)


class LoadCheck(tf.saved_model.experimental.TrackableResource):
    """Base class of checks whose `_initialize` runs when an export is loaded."""

    def _create_resource(self):
        # It stores nothing; a resource, because loaders initialize it.
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[])


def content_of(path: str) -> tf.Tensor:
    """Returns a file's content, or "" if it is missing."""
    is_there = tf.size(tf.io.matching_files(path)) > 0
    return tf.cond(is_there, lambda: tf.io.read_file(path), lambda: tf.constant(""))


class CpuCheck(LoadCheck):
    """Makes a SavedModel fail to load on machines where it would crash or compute wrong answers.

    Loading fails if the CPU lacks flags (unchecked without /proc/cpuinfo), or if `trial(0.0)` returns False because a
    kernel is missing or computes wrong numbers.
    """

    def __init__(self, compute: str, trial: Callable[[tf.Tensor], tf.Tensor]):
        super().__init__()
        # A closure holds the trial, since attributes of a resource are saved.
        self.compute, self.path, self._trial = compute, CPU_INFO, lambda zero: trial(zero)

    def _initialize(self):
        text = content_of(self.path)
        found = [tf.reduce_all([_has(text, flag) for flag in flags]) for flags in NEEDS.get(self.compute, ())]
        message = (
            f"this servable was exported for CPUs with {describe_needs(self.compute)}, which this machine has not; "
            "export it with --compute=float32 or int8"
        )
        has_flags = tf.reduce_any([text == "", not found, *found])
        with tf.control_dependencies([tf.debugging.Assert(has_flags, [message])]):
            zero = tf.cast(tf.minimum(tf.strings.length(text), 0), tf.float32)
        message = (
            f"this TensorFlow computes {self.compute} otherwise than the one that this servable was exported with; "
            "export it again with this TensorFlow, or with --compute=float32"
        )
        tf.debugging.Assert(self._trial(zero), [message])


def _has(text: tf.Tensor, flag: str) -> tf.Tensor:
    return tf.strings.regex_full_match(text, rf"(?s)(.*\n)?flags\s*:[^\n]*\b{flag}\b.*")
