"""Fixtures for every room: reference data that a clone does not carry, and a tiny road on text that CPython does."""

import os
import signal
from pathlib import Path

import pytest

# Set before any test imports Keras or TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every command that a test sends it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Started first, so that no core waits at the end for one of them.
LONGEST = ("test_whole_road.py", "test_soak.py", "test_notebooks.py", "test_jax.py", "test_devices.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout (or $ALBERT_TF_SHARED); tests that need it skip without it."""
    path = Path(os.environ.get("ALBERT_TF_SHARED", Path(__file__).parents[2] / "shared"))
    if not (path / "gold").is_dir():
        pytest.skip(f"no reference data at {path}; set ALBERT_TF_SHARED to run this test")
    return path


@pytest.fixture(scope="session")
def run_module():
    """Runs `python -m MODULE ARGUMENTS` from the checkout; returns the finished process with its output as text."""
    import subprocess
    import sys

    def run(module: str, *arguments: str, **options) -> subprocess.CompletedProcess:
        root = Path(__file__).parents[1]
        environment = os.environ | {"PYTHONPATH": str(root)}
        options = {"cwd": root, "env": environment, "capture_output": True, "text": True, "timeout": 240} | options
        return subprocess.run([sys.executable, "-m", module, *map(str, arguments)], **options)

    return run


@pytest.fixture(scope="session")
def topics(tmp_path_factory) -> Path:
    """Python's help topics as a corpus of documents, one paragraph a line."""
    from scripts.python_topics import write_topics

    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    write_topics(path)
    return path


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory, topics, run_module) -> Path:
    """Dynamic SOP records of the topics, 32 tokens long, with a vocabulary of 500 pieces."""
    folder = tmp_path_factory.mktemp("tiny")
    made = run_module(
        "tfrecords.train_tokenizer", f"--input={topics}", f"--output_prefix={folder}/spm", "--vocab_size=500"
    )
    assert made.returncode == 0, made.stderr
    built = run_module(
        *("tfrecords.create_pretraining_data", f"--input={topics}", f"--tokenizer={folder}/spm.model"),
        *(f"--output_dir={folder}/data", "--split_sentences", "--masking=dynamic", "--max_seq_length=32"),
        *("--max_predictions_per_seq=5", "--held_out_fraction=0.1", "--seed=1"),
    )
    assert built.returncode == 0, built.stderr
    # Every command ends with the next one.
    assert "next: python -m tfrecords.create_pretraining_data" in made.stderr
    assert built.stderr.splitlines()[-1].startswith("next: python -m albert_tf.run_pretraining --train_data=")
    return folder / "data"


@pytest.fixture(scope="session")
def tiny_settings(tmp_path_factory, tiny_data):
    """Settings of a pre-training run of four steps on the tiny records, into a folder of its own."""
    from albert_tf import AlbertConfig
    from albert_tf.training.pretraining import PretrainingSettings

    folder = tmp_path_factory.mktemp("settings")
    config = AlbertConfig(
        vocab_size=500, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=48, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    config.to_json(folder / "config.json")
    return PretrainingSettings(
        config=str(folder / "config.json"), train_data=str(tiny_data), eval_data=str(tiny_data),
        output_dir=str(folder / "run"), learning_rate=0.01, train_batch_size=8, num_train_steps=4, num_warmup_steps=1,
        save_checkpoints_steps=2,
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_run(tiny_settings) -> Path:
    """A model folder that pre-training wrote."""
    from albert_tf.training.pretraining import pretrain

    return pretrain(tiny_settings)
