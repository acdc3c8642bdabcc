"""Exports a model of a published size, and measures one export: what it costs to have, its latency by length in
process and over gRPC, its rows a second.
"""

from pathlib import Path

import keras

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder
from albert_tf.analysis.cost import flops, parameters
from albert_tf.checkpoints.formats import save_keras
from albert_tf.loading.model_files import MODEL_FILE
from benchmarks import inference_loading
from benchmarks.latency.page import BATCH, EXPORTS, LENGTH
from benchmarks.servers import model_server
from serving.benchmark.run import run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from serving.export import ExportSettings, export


def make_model(name: str, folder: Path) -> Path:
    """Returns a folder with a two-class classifier of the configuration `name`, with random weights."""
    if not (folder / MODEL_FILE).is_file():
        keras.utils.set_random_seed(0)
        folder.mkdir(parents=True, exist_ok=True)
        config = AlbertConfig.named(name)
        save_keras(AlbertClassifier(AlbertEncoder(config), num_classes=2), folder / MODEL_FILE)
        config.to_json(folder / "config.json")
        keras.utils.clear_session()
    return folder


def export_model(model: Path, variant: str, base: Path) -> Path:
    """Returns the version folder of an export that is written into `base`."""
    return export(ExportSettings(model=str(model), output_dir=str(base), version=1, **EXPORTS[variant]))


def measure(name: str, version: Path, lengths: str, seconds: float, text: Path, vocabulary: Path) -> dict:
    """Returns the figures of the export in `version`, served as long as that takes."""
    config = AlbertConfig.named(name)
    counted = parameters(config)
    with model_server(version.parent) as target:
        common = {"target": target, "model": "m", "in_process": str(version), "timeout_s": 120.0}
        common["seconds"] = seconds
        single = run_benchmark(BenchmarkSettings(lengths=lengths, **common))
        rows = {"text_file": str(text), "tokenizer": str(vocabulary), "batches": str(BATCH)}
        mixed = run_benchmark(BenchmarkSettings(lengths=str(LENGTH), **common, **rows))
    loaded = inference_loading.measure(version, other_lengths=0)
    return {
        "model": name,
        "parameters": counted.encoder + counted.pooler,
        "gflop": flops(config, LENGTH) / 1e9,
        "megabytes": single["model"]["in_process"]["megabytes"],
        "load_seconds": loaded["load_seconds"],
        "load_and_first_call_seconds": loaded["seconds"],
        "resident_mb": loaded["MiB"] * 2**20 / 1e6,
        "lengths": {str(point["length"]): _figures(point) for point in single["points"]},
        "mixed": _figures(mixed["points"][0]),
        "environment": single["environment"],
    }


def _figures(point: dict) -> dict:
    inside = point["in_process"]["latency_ms"]
    return {
        "in_process_ms": inside["p50"],
        "grpc_ms": point["latency_ms"]["p50"],
        "grpc_p90_ms": point["latency_ms"]["p90"],
        "in_process_rows_per_second": point["batch"] * 1000 / inside["mean"],
        "grpc_rows_per_second": point["examples_per_second"],
        "requests": point["requests"],
    }
