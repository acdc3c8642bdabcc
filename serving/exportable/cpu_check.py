"""The check by which a servable refuses, on any server, a CPU that would end the process or answer wrong."""

import tensorflow as tf

from serving.cpu import CPU_INFO, NEEDS, describe_needs


class CpuCheck(tf.saved_model.experimental.TrackableResource):
    """Fails to load, by core ops alone, on a CPU without the flags that `compute` needs.

    Every loader of SavedModels initializes resources before warm-up, and gives up the version where that fails: a
    server goes on with its other models. Where there is no /proc/cpuinfo (macOS), nothing is checked.

    Args:
        compute: one of `NEEDS`.
    """

    def __init__(self, compute: str):
        super().__init__()
        self.compute, self.path = compute, CPU_INFO

    def _create_resource(self):
        # Nothing is ever kept in it: a resource is what loaders initialize.
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[])

    def _initialize(self):
        is_there = tf.size(tf.io.matching_files(self.path)) > 0
        text = tf.cond(is_there, lambda: tf.io.read_file(self.path), lambda: tf.constant(""))
        found = [tf.reduce_all([_has(text, flag) for flag in flags]) for flags in NEEDS[self.compute]]
        message = (
            f"this servable was exported for CPUs with {describe_needs(self.compute)}, which this machine has not; "
            "export it with --compute=float32 or int8"
        )
        tf.debugging.Assert(tf.reduce_any([text == "", *found]), [message])


def _has(text: tf.Tensor, flag: str) -> tf.Tensor:
    return tf.strings.regex_full_match(text, rf"(?s)(.*\n)?flags\s*:[^\n]*\b{flag}\b.*")
