"""`albert-tf` starts every command by its name, and answers without TensorFlow."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tfrecords.base.version import VERSION


def run(*arguments):
    code = (
        "import sys; sys.argv[0] = 'albert-tf'; sys.modules['tensorflow'] = None; import serving.commands as c; c.run()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "status", "out", "err"),
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
def test_what_it_answers(arguments, status, out, err):
    ended = run(*arguments.split())
    assert ended.returncode == status, ended.stderr
    assert out in ended.stdout and err in ended.stderr and len(ended.stderr.splitlines()) == bool(err)
