"""`--check` compares all that a version answers with the Keras model, and fails one that answers otherwise."""

import json

import keras
import numpy as np
import pytest

from serving import check as check_module
from tests.refusals import lines, refused

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def check(monkeypatch):
    """check(model, served): asks the functions themselves in place of a fresh process that loads them."""

    def run(model, served):
        answer = lambda _, calls: [served(name, **inputs) for name, inputs in calls]  # noqa: E731
        monkeypatch.setattr(check_module, "run_calls", answer)
        return check_module.check(None, model, served.exportable)

    return run


# Head, family, inputs, options, and of which outputs it says how much they differ.
OUTPUTS = """
classifier | albert | ids | {} | logits
classifier | roberta | text | {} | logits, text logits
token classifier | roberta | text | {} | logits, text logits
token classifier | remembering xlnet | text | {} | logits, text logits
multiple choice | xlnet | text | {} | logits
spans | albert | text | {} | start_log_probs, end_log_probs
embedder | albert | text | {"dimensions": 5} | embedding, text embedding
pretrainer | albert | ids | {} | embedding, pooled_output
pretrainer | sentencepiece | text | {} | embedding, pooled_output, text embedding, text pooled_output
"""


@pytest.mark.parametrize("line", lines(OUTPUTS))
def test_the_check_reads_what_the_export_does(serve, check, line):
    head, family, inputs, options, outputs = line.split(" | ")
    differences = check(*serve(head, inputs == "text", family, **json.loads(options)))
    assert differences.keys() == set(outputs.split(", ")) and max(differences.values()) < 5e-5


@pytest.mark.parametrize(
    "head, text, broken",
    [
        ("classifier", False, "logits"),
        ("classifier", True, "becomes other ids in the graph than in Python"),
        ("regressor", True, "text value"),
        ("exiting classifier", False, "early_exit logits"),
        ("embedder", False, "embedding"),
    ],
)
def test_answers_of_another_model_fail_the_check(serve, check, head, text, broken):
    model, served = serve(head, text)
    spoilt = "early_exit" if "early_exit" in broken else "serving_default"

    def other(name, **inputs):
        answers = served(name, **inputs)
        if "ids" in broken and name == "tokenize":
            answers["input_ids"][0, 1] += 1
        elif "ids" not in broken and name == spoilt:
            answers |= {key: value + 0.01 for key, value in answers.items() if value.dtype == np.float32}
        return answers

    other.exportable = served.exportable
    with refused(f"failed its check: .*{broken}"):
        check(model, other)


def test_half_precision_models_are_checked(make_model, serve, check):
    _, served = serve("classifier")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half = make_model("classifier")
    finally:
        keras.config.set_dtype_policy("float32")
    half.set_weights(make_model("classifier").get_weights())
    assert check(half, served)["logits"] < 0.1
