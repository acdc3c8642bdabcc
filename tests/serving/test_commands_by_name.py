"""`albert-tf` starts every command by its name, and answers without TensorFlow."""

import pytest

from tfrecords.base.version import VERSION


@pytest.mark.parametrize(
    "arguments, status, out, err",
    [
        ("", 0, "Usage: albert-tf COMMAND", ""),
        ("--help", 0, "  finetune          fine-tune a model", ""),
        ("--version", 0, f"albert-tf {VERSION} (TensorFlow ", ""),
        ("finetune --help", 0, "Usage: albert-tf finetune ", ""),
        ("finetune --version", 0, f"albert-tf {VERSION} (", ""),
        ("serve --help", 0, "\nalbert-tf serve --port=8500 ", ""),
        (
            "serve --port 8500",
            255,
            "--port has no value: write --port=VALUE, with '=' and without a space\nusage: albert-tf s",
            "",
        ),
        ("pretrain --train_data=no --output_dir=o --config=albert_tiny", 1, "", "build some: albert-tf examples"),
        ("fintune", 2, "", "error: unknown command 'fintune'; did you mean 'finetune'? (albert-tf --help"),
        ("finetune --hlep", 2, "", "error: Unknown command line flag 'hlep'. Did you mean: help"),
        ("export", 1, "", "error: --model=..., --output_dir=... must be given"),
    ],
)
def test_what_it_answers(run_module, arguments, status, out, err):
    ended = run_module("serving.commands", *arguments.split(), without_tensorflow=True)
    assert ended.returncode == status, ended.stderr
    assert out in ended.stdout and err in ended.stderr and len(ended.stderr.splitlines()) == bool(err)
