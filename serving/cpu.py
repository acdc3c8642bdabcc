"""The CPU features that a bfloat16 export needs, and an export's check of the machine that loads it."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tfrecords.base.machine.cpu import CPU_INFO, OWN_CPU_INFO, cpu_flags

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
