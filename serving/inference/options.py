import dataclasses
from typing import Self

import tensorflow as tf

from serving.choices import COMPUTE
from serving.cpu import can_run
from serving.inference import onednn
from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import bfloat16_flags


@dataclasses.dataclass(frozen=True)
class InferenceOptions:
    """Options of the inference encoder, named as ExportSettings' flags.

    "bfloat16" and "int8" need oneDNN; "int8" is correct on every x86 CPU. "auto" chooses for this CPU. `other_cpu`
    skips the check that this CPU can run the encoder. An impossible choice raises UserError.
    """

    compute: str = "float32"
    other_cpu: bool = False

    def __post_init__(self):
        if self.compute not in (*COMPUTE, "auto"):
            raise UserError(f"compute '{self.compute}' is none of {', '.join(COMPUTE)}, auto")

    def resolved(self) -> Self:
        """Replaces "auto" by the choice for this CPU."""
        if self.compute != "auto":
            return self
        return dataclasses.replace(self, compute="bfloat16" if bfloat16_flags() else "float32")

    @property
    def dtype(self) -> tf.DType:
        """The type of everything that is not in 8 bits: float32 for int8, as CPUs may lack bfloat16 products."""
        return tf.bfloat16 if self.compute == "bfloat16" else tf.float32


def check_runs_here(options: InferenceOptions, hidden_act: str) -> None:
    """Raises UserError if the options cannot run here, unless they are for another CPU.

    It checks the CPU first: without AVX-512 a bfloat16 product ends the process.
    """
    if options.compute == "float32" or options.other_cpu:
        return
    if not can_run(options.compute):
        raise UserError(
            "bfloat16 cannot run here: this CPU has no AVX-512; choose float32 or int8, or export with --other_cpu for "
            "one that can"
        )
    onednn.require(options.compute, hidden_act)
