"""The inference benchmark measures what can run here, and names what cannot."""

import json

import pytest

from albert_tf import AlbertConfig, AlbertEncoder
from benchmarks import inference
from benchmarks.inference import InferenceBenchmarkSettings, benchmark
from tfrecords.base.errors import UserError


@pytest.fixture
def small(monkeypatch):
    """A tiny model, made-up sentences, and no processes for what loading costs."""
    config = AlbertConfig(
        vocab_size=60, embedding_size=8, hidden_size=16, num_hidden_layers=4, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32
    )  # fmt: skip
    monkeypatch.setattr(inference, "make_random_encoder", lambda name: AlbertEncoder(config))
    rows = [[2, *range(5, 5 + length), 3] for length in (3, 9, 20)]
    both = {"SST-2": rows, "MRPC": rows}
    monkeypatch.setattr(inference.inference_data, "sentences", lambda data, count, seed=0: both)
    monkeypatch.setattr(inference.inference_loading, "measure", lambda folder: {"load_seconds": 0.0})
    monkeypatch.setattr(inference.hub, "export", lambda config, folder: None)


@pytest.mark.slow
def test_what_cannot_run_is_left_out_and_named(small, monkeypatch, tmp_path, capsys):
    def no_peers(*_):
        raise UserError("the peers lack torch")

    monkeypatch.setattr(inference, "make_peers", no_peers)
    monkeypatch.setattr("serving.inference.encoder.can_run", lambda compute, *_: compute != "bfloat16")
    (tmp_path / "spm").mkdir()  # Of a folder of data.
    benchmark(InferenceBenchmarkSettings(str(tmp_path / "out"), data_dir=str(tmp_path), quick=True))
    results = json.loads((tmp_path / "out/inference.json").read_text())
    assert results["left_out"].keys() == {"bf16", "peers"}
    assert "bfloat16 cannot run here" in results["left_out"]["bf16"]
    made = {"fp32", "int8"}
    for found in (results["comparisons"]["1x32"], results["comparisons"]["SST-2"]):
        assert found["milliseconds"].keys() == made
        assert found["difference"]["fp32"] < 1e-5
    assert results["exits"].keys() == {"float32", "int8"}
    assert results["loading"].keys() == {*made, "keras-hub"}
    printed = capsys.readouterr().out
    assert "left out: bf16: bfloat16 cannot run here: this CPU has no AVX-512" in printed
    assert "left out: peers: the peers lack torch" in printed
    assert (tmp_path / "out/inference.png").is_file()
