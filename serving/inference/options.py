import dataclasses
from pathlib import Path
from typing import Self

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.config.extension import setting_of
from serving.choices import COMPUTE, ENGINES, PADDING, PERFORMANCE_HINTS
from serving.cpu import has_avx512, has_vnni
from serving.inference import onednn
from tfrecords.base.cpu import OWN_CPU_INFO, bfloat16_flags, cpu_flags
from tfrecords.base.errors import UserError

# Lengths for which engine "xla" is compiled, by the first of these flags that a CPU has, and the shortest row for each:
# () for one token more than the length before. Measured in docs/results/engine_xla.md: with AVX-512, numbers of tokens
# that are no power of two are slower than the usual engine, so only rows of nearly these lengths are padded.
_TO_128 = tuple(range(8, 136, 8))
# Above 128 in steps of 32, for fewer compilations: padding takes part of the gain.
_TO_384 = (*_TO_128, 144, *range(160, 416, 32))
_POWERS = (16, 32, 64, 128, 256), (1, 17, 60, 120, 240)
FASTER = {"amx_bf16": (_TO_128, ()), "avx512f": _POWERS, "avx2": (_TO_384, ())}
_OTHER_CPU = ", or export with --other_cpu for one that can"


@dataclasses.dataclass(frozen=True)
class InferenceOptions:
    """Options of the inference encoder; all but `compiled_from` are named as ExportSettings' flags.

    "bfloat16", "int8" and "int8_vnni" need oneDNN. "int8" is correct on every x86 CPU; "int8_vnni" rounds weights less,
    but needs avx512_vnni or avx_vnni. "auto" chooses for this CPU. `other_cpu` skips the check that this CPU can run
    the encoder. An impossible choice raises UserError.
    """

    compute: str = "float32"
    padding: str = "skipped"
    other_cpu: bool = False
    performance_hint: str = "latency"
    engine: str = "tensorflow"
    compiled_lengths: tuple[int, ...] = ()
    # The shortest row for each of the lengths, as in FASTER.
    compiled_from: tuple[int, ...] = ()

    def __post_init__(self):
        known = {"compute": (*COMPUTE, "auto"), "padding": PADDING, "performance_hint": PERFORMANCE_HINTS}
        known["engine"] = (*ENGINES, "auto")
        for name, choices in known.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(f"{name} '{value}' is none of {', '.join(choices)}")
        if self.performance_hint == "throughput" and self.compute == "float32":
            raise UserError("performance_hint 'throughput' is for bfloat16 and int8; float32 runs without oneDNN's ops")
        if self.engine == "xla" and (self.compute, self.padding) != ("float32", "skipped"):
            raise UserError("engine 'xla' is for compute 'float32' with padding 'skipped'")

    def resolved(self, config: AlbertConfig) -> Self:
        """Replaces "auto" by the choice for this CPU; raises UserError if "xla" lacks an extension of the encoder."""
        compute, engine = self.compute, self.engine
        if compute == "auto":
            compute = "bfloat16" if bfloat16_flags() else "float32"
        lengths, shortest = self.compiled_lengths, self.compiled_from
        if not lengths:
            lengths, shortest = next((FASTER[flag] for flag in FASTER if flag in cpu_flags()), ((), ()))
        refused = ", ".join(setting_of(config, one) for one in config.extensions if not one.for_xla)
        if engine == "xla" and refused:
            raise UserError(f"engine xla does not run {refused}; leave out --engine")
        if engine == "auto":
            runs = (compute, self.padding) == ("float32", "skipped") and not refused
            engine = "xla" if runs and lengths else "tensorflow"
        if engine != "xla":
            lengths, shortest = (), ()
        lengths = lengths or ((16, 32) if engine == "xla" else ())
        chosen = {"compute": compute, "engine": engine}
        return dataclasses.replace(self, **chosen, compiled_lengths=lengths, compiled_from=shortest)

    @property
    def compiled_rows(self) -> dict[int, int]:
        """The compiled lengths, each with the shortest row that is padded to it."""
        each = (1, *(length + 1 for length in self.compiled_lengths))[: len(self.compiled_lengths)]
        return dict(zip(self.compiled_lengths, self.compiled_from or each, strict=True))

    @property
    def dtype(self) -> tf.DType:
        """The type of everything that is not in 8 bits: float32 for int8, as CPUs may lack bfloat16 products."""
        return tf.float32 if self.is_quantized else tf.dtypes.as_dtype(self.compute)

    @property
    def is_quantized(self) -> bool:
        return self.compute in ("int8", "int8_vnni")


def advise(compute: str, cpu_info: Path = OWN_CPU_INFO) -> str | None:
    """Returns advice if another `compute` is faster on this CPU, else None."""
    fast = bfloat16_flags(cpu_info)
    if compute == "float32" and fast:
        return f"this CPU has {fast[0]}: --compute=bfloat16 is 1.6 to 2 times as fast as float32 (docs/results)"
    if compute == "bfloat16" and not fast and has_avx512(cpu_info):
        lacks = "neither amx_bf16 nor avx512_bf16"
        return f"this CPU has {lacks}: float32 is 2 to 4 times as fast on such CPUs (docs/results)"
    return None


def check_runs_here(options: InferenceOptions, hidden_act: str) -> None:
    """Raises UserError if the options cannot run here, unless they are for another CPU.

    It checks the CPU first: without AVX-512 a bfloat16 product ends the process.
    """
    if options.compute == "float32" or options.other_cpu:
        return
    if options.compute == "bfloat16" and not has_avx512():
        raise UserError(f"bfloat16 cannot run here: this CPU has no AVX-512; choose float32 or int8{_OTHER_CPU}")
    if options.compute == "int8_vnni" and not has_vnni():
        reason = "this CPU has neither avx512_vnni nor avx_vnni"
        raise UserError(f"int8_vnni cannot run here: {reason}; choose int8{_OTHER_CPU}")
    onednn.require(options.compute, options.performance_hint == "throughput", hidden_act)
