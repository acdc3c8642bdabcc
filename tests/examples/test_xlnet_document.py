"""examples/xlnet_document.py in front of our model server."""

import ast
import contextlib
import importlib.util
import sys

import keras
import numpy as np

from albert_tf import AlbertConfig, AlbertEncoder
from serving.client import Client
from serving.export import ExportSettings, export
from tests.conftest import ROOT
from tests.serving.model_server.conftest import start
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "by", "river"]


@contextlib.contextmanager
def stopping(server):
    try:
        yield
    finally:
        server.stop()


def test_windows_give_what_one_long_row_does(tmp_path, monkeypatch, capsys):
    tokenizer = WordPieceTokenizer("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).encode())
    keras.utils.set_random_seed(0)
    encoder = AlbertEncoder(AlbertConfig(
        vocab_size=tokenizer.vocab_size, embedding_size=4, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, position_type="relative", attention_type="uni", memory_length=40, initializer_range=0.3,
        max_position_embeddings=40
    ))  # fmt: skip
    encoder.save(tmp_path / "model.keras")
    tokenizer.save(tmp_path)
    export(
        ExportSettings(str(tmp_path), str(tmp_path / "document"), warm_up_lengths="8", warm_up_signatures="stateful")
    )
    rng, text = np.random.default_rng(0), tmp_path / "text.txt"
    text.write_text(" ".join(rng.choice(WORDS, 31)))
    spec = importlib.util.spec_from_file_location("xlnet_document", ROOT / "examples/xlnet_document.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    server = start(model_name="document", model_base_path=str(tmp_path / "document"))
    with stopping(server), Client(server.address, "document") as client:
        arguments = [f"--target={server.address}", f"--tokenizer={tmp_path}", f"--text_file={text}", "--window=7"]
        monkeypatch.setattr(sys, "argv", ["xlnet_document.py", *arguments])
        example.main()
        ids = [*tokenizer.encode(text.read_text()), tokenizer.sep_id, tokenizer.cls_id]
        whole = client.predict_ids([ids], [[0] * 32 + [2]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["7", "14", "21", "28", "33"]
    last = ast.literal_eval(lines[-1].split(": ", 1)[1])
    np.testing.assert_allclose(last["pooled_output"], whole["pooled_output"][0], atol=1e-4)
