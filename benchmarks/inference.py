"""ALBERT inference beside OpenVINO and ONNX Runtime, the same weights: `python -m benchmarks.inference --help`.

Everything is timed in this one process in rounds, each system once a round, medians taken; ours through the exported
SavedModel and the LiteRT version. What cannot run here is left out and named: the peers without
`pip install '.[peers]'`, arithmetic that the CPU has not. Real sentences need the data in --data_dir.
"""

import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import functools
import json
import tempfile
from pathlib import Path

import keras
import matplotlib
import numpy as np
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.loaded import Loaded
from benchmarks import hub, inference_accuracy, inference_data, inference_exits, inference_loading
from benchmarks.inference_accuracy import IDS, LENGTHS
from benchmarks.inference_peers import make_peers
from benchmarks.timing import medians_ms
from serving.benchmark.report import environment
from serving.inference import InferenceOptions, make_encoder
from serving.lite import LiteModel
from tfrecords.base import files
from tfrecords.base.machine.cpu import cpu_flags
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting

matplotlib.use("Agg")
from matplotlib import pyplot as plt

OURS = {
    "fp32": InferenceOptions("float32"),
    "bf16": InferenceOptions("bfloat16"),
    "int8": InferenceOptions("int8"),
}
# LiteRT versions, and how they compute.
LITE = {"LiteRT fp32": "float32", "LiteRT int8": "int8"}
# Whose times the others are compared with.
_PEERS = ("OpenVINO fp32", "OpenVINO bf16", "OpenVINO int8", "ONNX Runtime fp32", "ONNX Runtime int8")
BASES = ("fp32", *_PEERS)
# Mean steps of a fine-tuned SST-2 classifier at no more than 0.5 points lost (docs/results/early_exit.md).
EXIT_STEPS = 3.3
FLAGS = {"avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}


@dataclasses.dataclass(frozen=True)
class InferenceBenchmarkSettings:
    output_dir: str = setting(help="folder for inference.json and inference.png")
    config: str = setting("albert_base_v2", help="named configuration; the weights are random")
    shapes: str = setting("1x16,1x32,1x64,1x128,1x384", help="single requests, batch x length")
    threads: int = setting(0, help="threads of each engine; 0: one a core", at_least=0)
    data_dir: str = setting("../shared/data", help="folder with glue, squad and spm; without it no real sentences")
    batch_size: int = setting(32, help="rows of a batch of real sentences")
    rounds: int = setting(7, help="timed rounds after one of warm-up")
    quick: bool = setting(False, help="two rounds, 1x32 and SST-2 only")
    early_exit_model: str = setting("", help="folder of an SST-2 classifier trained with --early_exit: accuracy too")


def make_random_encoder(name: str, layers: int = 0) -> AlbertEncoder:
    """Random weights with biases that are not 0: TensorFlow takes zero biases out of the graph."""
    keras.utils.set_random_seed(0)
    config = AlbertConfig.named(name)
    encoder = AlbertEncoder(config.replace(num_hidden_layers=layers or config.num_hidden_layers))
    for variable in encoder.trainable_variables:
        if variable.name in ("bias", "beta", "gamma"):
            variable.assign(variable + keras.random.normal(variable.shape, stddev=0.02))
    return encoder


def export(encoder, options: InferenceOptions, folder: Path, calibration):
    """Saves and loads; returns a function of input_ids and lengths, int32, to the pooled output."""
    module = make_encoder(encoder, options, calibration)
    function = tf.function(lambda **inputs: {"pooled_output": module.pooled(**inputs)}, autograph=False)
    specs = {spec.name: spec for spec in (IDS, LENGTHS)}
    tf.saved_model.save(module, str(folder), {"serving_default": function.get_concrete_function(**specs)})
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]

    def run(*inputs):
        return signature(**{name: tf.constant(one) for name, one in zip(specs, inputs)})["pooled_output"].numpy()

    run.keep = loaded
    return run


def export_lite(encoder, compute: str, folder: Path, threads: int):
    """Writes a LiteRT version; returns a function of input_ids and lengths, int32, to the pooled output."""
    model = LiteModel(Loaded(encoder, None, {}).export(folder, engine="litert", compute=compute), threads)

    def run(ids, lengths):
        rows = [
            {"input_ids": row[:length], "segment_ids": np.zeros(length, np.int32), "lengths": length}
            for row, length in zip(ids, lengths)
        ]
        return np.stack([answer["pooled_output"] for answer in model.run(rows, ("pooled_output",))])

    return run


def time_rounds(functions: dict, rounds: int) -> dict[str, float]:
    """Median milliseconds of each function, all taking turns; a pause lets threads that wait in a loop fall asleep."""

    def pause_s(name: str) -> float:
        return 0.03 if name.startswith(("LiteRT", "ONNX", "PyTorch")) else 0.002

    return medians_ms(functions, rounds, pause_s)


def compare(rows, ours: dict, peers: dict, encoder, rounds: int) -> dict:
    """Times, and how far each pooled output is from the Keras model's."""
    ids, mask, lengths = inference_data.pad(rows)
    wide = ids.astype(np.int64)
    functions = {name: lambda run=run: run(ids, lengths) for name, run in ours.items()}
    functions |= {name: lambda run=run: run(wide, mask) for name, run in peers.items()}
    expected = keras.ops.convert_to_numpy(
        encoder({"input_ids": ids, "input_mask": mask.astype("int32")})["pooled_output"]
    )
    difference = {name: float(np.abs(function() - expected).max()) for name, function in functions.items()}
    found = {"milliseconds": time_rounds(functions, rounds), "difference": difference}
    return found | {"rows": len(rows), "tokens": int(lengths.sum()), "padded": int(ids.size)}


def machine() -> dict:
    here, flags = environment(), sorted(FLAGS & cpu_flags())
    return {"cpu": here["cpu"], "cores": here["usable_cores"], "flags": flags, "tensorflow": tf.__version__}


def made(makers: dict, left_out: dict) -> dict:
    """What each maker makes, by name; where one cannot here, `left_out` gets its reason."""
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except UserError as error:
            left_out[name] = str(error)
            print(f"left out: {name}: {error}")
    return found


def print_comparison(name: str, found: dict) -> None:
    times = found["milliseconds"]
    print(f"\n{name}: {found['rows']} rows, {found['tokens']} tokens, {found['padded']} with padding")
    for system, value in sorted(times.items(), key=lambda item: item[1]):
        ratios = "".join(f"  {times[base] / value:5.2f}x {base}" for base in BASES if base in times)
        speed = f"{1e3 * found['rows'] / value:7.1f} rows/s"
        print(f"  {system:18} {value:8.1f} ms  {speed}{ratios}  difference {found['difference'][system]:.1e}")


def print_exits(exits: dict) -> None:
    print("\nSST-2 with early exit, milliseconds (ratio to none):")
    for compute, found in exits.items():
        print(f"  {compute}, {found['steps']:.1f} steps on average where rows leave")
        for name in [name for name in found if name != "steps"]:
            print(f"    {name:24} {found[name]:7.1f} ({found['plain'] / found[name]:.2f}x)")


def print_loading(loading: dict) -> None:
    print("\nloading; with a first 1x128 request; with freed memory given back; after 400 lengths:")
    for name, found in loading.items():
        parts = [f"{found[key]:7.2f} {key.split('_')[-1]}" for key in found]
        print(f"  {name:12} {'  '.join(parts)}")


def plot(results: dict, path: Path) -> None:
    comparisons = results["comparisons"]
    figure, axes = plt.subplots(1, len(comparisons), figsize=(3.2 * len(comparisons), 3.6), constrained_layout=True)
    for axis, (name, found) in zip(np.atleast_1d(axes), comparisons.items(), strict=True):
        times = found["milliseconds"]
        colors = ["tab:blue" if system in (*OURS, *LITE) else "tab:gray" for system in times]
        axis.barh(list(times), list(times.values()), color=colors)
        axis.invert_yaxis()
        axis.set(title=name, xlabel="milliseconds")
    figure.suptitle(f"{results['config']}, {results['machine']['cores']} cores; blue: albert-tf")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def data_of(settings: InferenceBenchmarkSettings) -> Path | None:
    """The folder of real sentences, if it is one."""
    data = Path(settings.data_dir)
    return data if (data / "spm").is_dir() else None


def calibration_rows(settings: InferenceBenchmarkSettings, vocab_size: int) -> list[list[int]]:
    """Token ids of 32 rows: of MRPC, or random ones without data."""
    data = data_of(settings)
    if data is None:
        return np.random.default_rng(1).integers(5, vocab_size, (32, 64)).tolist()
    return inference_data.sentences(data, 32, seed=1)["MRPC"]


def benchmark(settings: InferenceBenchmarkSettings) -> dict:
    output, data = files.make_output_dir(settings.output_dir), data_of(settings)
    if settings.early_exit_model:
        if data is None:
            raise UserError(f"--early_exit_model is asked SST-2, and --data_dir={settings.data_dir} has no folder spm")
        inference_accuracy.load_with_exits(settings.early_exit_model)
    if settings.threads:
        tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    encoder = make_random_encoder(settings.config)
    workloads, rounds = {}, 2 if settings.quick else settings.rounds
    shapes = ["1x32"] if settings.quick else settings.shapes.split(",")
    for text in shapes:
        batch, length = map(int, text.split("x"))
        workloads[text] = inference_data.shape(batch, length, encoder.config.vocab_size)
    if data:
        real = inference_data.sentences(data, settings.batch_size)
        workloads |= {"SST-2": real["SST-2"]} if settings.quick else real
    results = {"config": settings.config, "machine": machine(), "settings": dataclasses.asdict(settings)}
    left_out = results["left_out"] = {}
    print(json.dumps(results["machine"]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # The ranges of 8-bit numbers, ours and the peers', are from the same rows.
        calibration = calibration_rows(settings, encoder.config.vocab_size)
        ids, _, lengths = inference_data.pad(calibration)
        makers = {
            name: functools.partial(export, encoder, options, folder / name, (ids, lengths))
            for name, options in OURS.items()
        }
        threads = settings.threads or results["machine"]["cores"]
        lite = {
            name: functools.partial(export_lite, encoder, compute, folder / name, threads)
            for name, compute in LITE.items()
        }
        ours, light = made(makers, left_out), made(lite, left_out)
        peers = made({"peers": lambda: make_peers(encoder, folder, threads, calibration)}, left_out).get("peers", {})
        computes = list(dict.fromkeys(OURS[name].compute for name in ours))
        results["comparisons"] = {}
        for name, rows in workloads.items():
            results["comparisons"][name] = compare(rows, ours | light, peers, encoder, rounds)
            print_comparison(name, results["comparisons"][name])
        if "SST-2" in workloads:
            results["exits"] = inference_exits.measure(
                encoder, workloads["SST-2"], EXIT_STEPS, computes, rounds, time_rounds
            )
            print_exits(results["exits"])
        hub.export(encoder.config, folder / "keras-hub")
        results["loading"] = {name: inference_loading.measure(folder / name) for name in (*ours, "keras-hub")}
    print_loading(results["loading"])
    files.write_json(output / "inference.json", results)
    plot(results, output / "inference.png")
    if settings.early_exit_model:
        with tempfile.TemporaryDirectory() as temporary:
            results["fine_tuned"] = inference_accuracy.measure(
                settings.early_exit_model, data, Path(temporary), computes, (settings.batch_size, 1), min(rounds, 3)
            )
        print("\nSST-2, fine-tuned:")
        for found in results["fine_tuned"]:
            print("  " + "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in found.items()))
        files.write_json(output / "inference.json", results)
    return results


if __name__ == "__main__":
    run_main(benchmark, InferenceBenchmarkSettings)
