"""One export's figures: what it costs to have, its latency by length in process, over gRPC and over REST, its rows a
second.
"""

from pathlib import Path

from albert_tf import AlbertConfig
from albert_tf.analysis.cost import flops, parameters
from benchmarks import inference_loading
from benchmarks.latency.page import BATCH, LENGTH
from serving.benchmark.run import run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from tests.servers import free_port, running_server

# Enough for a median with ten samples beyond it.
LEAST_REQUESTS = 21


def measure(name: str, version: Path, lengths: str, seconds: float, text: Path, vocabulary: Path, folder: Path) -> dict:
    """The figures of the export in `version`, a server started for them and ended."""
    config = AlbertConfig.named(name)
    counted = parameters(config)
    rest_api_port = free_port()
    with running_server({"model": version.parent}, folder, free_port(), rest_api_port) as target:
        common = {"target": target, "model": "model", "in_process": str(version), "check": False, "timeout_s": 120.0}
        common |= {"seconds": seconds, "least_requests": LEAST_REQUESTS}
        both = {"protocols": "grpc,rest", "rest_api_port": rest_api_port}
        single = run_benchmark(BenchmarkSettings(lengths=lengths, **common, **both))
        rows = {"mixed": True, "text_file": str(text), "tokenizer": str(vocabulary), "batches": str(BATCH)}
        mixed = run_benchmark(BenchmarkSettings(lengths=str(LENGTH), **common, **rows))
    loaded = inference_loading.measure(version, other_lengths=0)
    return {
        "model": name,
        "parameters": counted.encoder + counted.pooler,
        "gflop": flops(config, LENGTH).total / 1e9,
        "megabytes": single["model"]["in_process"]["megabytes"],
        "load_seconds": loaded["load_seconds"],
        "load_and_first_call_seconds": loaded["seconds"],
        "resident_mb": loaded["MiB"] * 2**20 / 1e6,
        "lengths": _by_length(single["points"]),
        "mixed": _figures(mixed["points"][0]),
        "environment": single["environment"],
    }


def _by_length(points: list[dict]) -> dict[str, dict]:
    grpc, rest = ([point for point in points if point["protocol"] == one] for one in ("grpc", "rest"))
    return {
        str(one["length"]): _figures(one)
        | {"rest_ms": other["latency_ms"]["p50"], "rest_p90_ms": other["latency_ms"]["p90"]}
        for one, other in zip(grpc, rest, strict=True)
    }


def _figures(point: dict) -> dict:
    inside = point["in_process"]["latency_ms"]
    rows = point["batch"] * 1000 / inside["mean"]
    return {
        "in_process_ms": inside["p50"],
        "grpc_ms": point["latency_ms"]["p50"],
        "grpc_p90_ms": point["latency_ms"]["p90"],
        "in_process_rows_per_second": rows,
        "grpc_rows_per_second": point["examples_per_second"],
        "requests": point["requests"],
        "stable": point["stable"],
    }
