"""What each option of the modern block costs beside plain ALBERT: `python -m benchmarks.modern_block --help`.

Parameters and operations are counted; times are of exports, 1x128 by default, all taking turns in one process.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import json
import tempfile
from pathlib import Path

import keras
import numpy as np

from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.analysis.cost import flops, parameters
from benchmarks.inference import export, machine, time_rounds
from serving.choices import COMPUTE
from serving.inference import InferenceOptions
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting

# A glu of two thirds of the width has as many weights as an mlp, and does as much work.
_GLU = {"feed_forward": "glu", "intermediate_size": 2048}
OPTIONS = {
    "ALBERT": {},
    'norm_position="pre"': {"norm_position": "pre"},
    'norm="rms_norm"': {"norm": "rms_norm"},
    'feed_forward="glu", intermediate_size=2048': _GLU,
    'position_type="rotary"': {"position_type": "rotary"},
    "use_bias=False": {"use_bias": False},
}
OPTIONS["all five"] = {name: value for option in OPTIONS.values() for name, value in option.items()}


@dataclasses.dataclass(frozen=True)
class ModernBlockSettings:
    """What is timed."""

    config: str = setting("albert_base_v2", help="named configuration of ALBERT-base's sizes; the weights are random")
    compute: str = setting("bfloat16", help="how the exports compute", choices=COMPUTE)
    batch: int = setting(1, help="rows of a request", at_least=1)
    length: int = setting(128, help="tokens of every row", at_least=1)
    rounds: int = setting(41, help="timed rounds after one of warm-up", at_least=1)


def benchmark(settings: ModernBlockSettings, options: dict[str, dict]) -> dict[str, float]:
    """Gives the median milliseconds of a request with each of the options, the changes of a configuration by name."""
    base, shape = AlbertConfig.named(settings.config), (settings.batch, settings.length)
    ids = np.random.default_rng(0).integers(5, base.vocab_size, shape).astype("int32")
    lengths = np.full(settings.batch, settings.length, "int32")
    # One text, of which the last token has a segment of its own, as XLNet's [CLS] does.
    segments = np.zeros(shape, "int32")
    segments[:, -1] = base.type_vocab_size - 1
    with tempfile.TemporaryDirectory() as folder:
        functions = {}
        for name, changes in options.items():
            keras.utils.set_random_seed(0)
            encoder = AlbertEncoder(base.replace(**changes))
            for variable in encoder.depth_variables.values():  # or what is at its start might be skipped
                variable.assign(variable + keras.random.normal(variable.shape, stddev=0.01))
            how = InferenceOptions(settings.compute)
            run = export(encoder, how, Path(folder) / str(len(functions)), segments=True)
            functions[name] = lambda run=run: run(ids, lengths, segments)
        return time_rounds(functions, settings.rounds)


def main(settings: ModernBlockSettings, options: dict[str, dict] = OPTIONS) -> None:
    """Prints a table in Markdown; the first of the options is what the others are beside."""
    base, request = AlbertConfig.named(settings.config), f"{settings.compute}, {settings.batch}x{settings.length}"
    print(json.dumps(machine()))
    print(f"| {request} | parameters | GFLOP | milliseconds | beside ALBERT |")
    print("|---|---|---|---|---|")
    times = benchmark(settings, options)
    for name, changes in options.items():
        config = base.replace(**changes)
        count, work = parameters(config), flops(config, settings.length).total * settings.batch / 1e9
        ratio = times[name] / times[next(iter(options))]
        print(f"| {name} | {count.encoder + count.pooler:,} | {work:.1f} | {times[name]:.1f} | {ratio:.2f}x |")


if __name__ == "__main__":
    run_main(main, ModernBlockSettings)
