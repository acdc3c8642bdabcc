"""What was exported on x86-64 answers on ARM64 as there, within each version's own tolerance.

An emulated ARM64 is set up, or else ARM64_EXPORTS names a folder for the versions and their answers, to be asked on
another machine (`tests/arm64/ask.py`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arm64.ask import differences
from tests.arm64.emulator import emulated_python
from tests.conftest import ROOT
from tests.serving.conftest import (  # noqa: F401
    LABELS,
    make_model,
    roberta_tokenizer,
    tokenizer,
    tokenizer_of,
    write_export,
)

pytestmark = [pytest.mark.slow("arm64"), pytest.mark.timeout(1800)]
# TensorFlow leaves kernels of less than 1,024 numbers in float32.
WIDE = {"hidden_size": 64, "intermediate_size": 128}
ONE, TWO = {"labels": LABELS, "inputs": ["text"]}, {"labels": LABELS, "inputs": ["first", "second"]}
# Head, family, task and arithmetic.
CASES = {
    "classes": ("classifier", "albert", ONE, "int8"),
    "labels": ("classifier", "sentencepiece", ONE, "float32"),
    "pairs": ("classifier", "roberta", TWO, "int8"),
    "numbers": ("regressor", "sentencepiece", {"inputs": ["first", "second"]}, "int8"),
    "tags": ("token classifier", "roberta", {"labels": ["a", "b", "O", "d"]}, "float32"),
    "vectors": ("embedder", "albert", {"prompts": {"query": "who is "}}, "int8"),
    "vectors-32": ("embedder", "sentencepiece", {}, "float32"),
    "encoder": ("encoder", "roberta", {}, "int8"),
    "spans": ("spans", "albert", {"null_threshold": 3.0}, "int8"),
    "joint": ("joint spans", "sentencepiece", {}, "float32"),
    "choices": ("multiple choice", "albert", {}, "int8"),
    "words": ("pretrainer", "sentencepiece", {}, "int8"),
    "words-alone": ("words alone", "roberta", {}, "float32"),
}


@pytest.fixture(scope="module")
def folder(make_model, tokenizer_of, tmp_path_factory):  # noqa: F811
    """A folder with the version of each case in `versions`, and in answers.json what it answers here."""
    given = os.environ.get("ARM64_EXPORTS")
    base, made = Path(given or tmp_path_factory.mktemp("exports")), tmp_path_factory.mktemp("models")
    (base / "versions").mkdir(parents=True)
    for name, (head, family, task, compute) in CASES.items():
        (made / name).mkdir()
        settings = {"engine": "litert", "inputs": "text", "compute": compute, "max_seq_length": 40, "doc_stride": 5}
        model = make_model(head, family=family, **WIDE)
        model.multi_label = name == "labels"
        write_export(made / name, model, tokenizer_of(family), task, **settings).rename(base / "versions" / name)
    (base / "answers.json").write_text(asked(base, [sys.executable]))
    return base


def asked(base, python, packages=""):
    environment = os.environ | {"PYTHONPATH": f"{packages}:{ROOT}".strip(":")}
    command = [*python, "-m", "tests.arm64.ask", str(base / "versions")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def answers(folder, tmp_path_factory):
    """The answers of each case here, and on ARM64."""
    if "ARM64_EXPORTS" in os.environ:
        pytest.skip("the versions are for another machine")
    emulator = tmp_path_factory.mktemp("emulator")
    found = json.loads(asked(folder, emulated_python(emulator), emulator / "packages"))
    return json.loads((folder / "answers.json").read_text()), found


@pytest.mark.parametrize("name", CASES)
def test_a_version_answers_on_arm64_as_where_it_was_exported(answers, name):
    expected, found = (of[name] for of in answers)
    far = differences(expected, found)
    print(f"{name}: {max(far.values()):.3f} of its tolerance")
    assert max(far.values()) <= 1, far
