"""The signatures of LiteRT versions against those of SavedModels, by text and by ids; and the windows of long texts."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from serving.lite.model import LiteModel
from serving.lite.rows import Framer as LiteFramer
from serving.lite.signatures import signatures_of
from tests.refusals import refused
from tests.serving.conftest import LABELLED, LABELS, assert_close, example
from tests.slow_groups import some_slow
from tfrecords.reading.framing import Framer

TEXTS = [b"the cat sat", b"", "a \u00e9 film, \u200d 2000 [UNK] the".encode(), b"the river runs in paris " * 12]
CONTEXTS = [b"paris is the capital of france", b"the cat sat on the mat " * 20, b"", b"\xff the river runs"]
MASKED = [b"the [MASK] sat on [MASK]", b"[MASK]", b"the film is [MASK] , the cat [MASK] [MASK]", b"no mask"]
PAIR = {"inputs": ["first", "second"]}
# Head, task and signatures: all of a text export but early exit, and vectors and weights of tokens.
CASES = {
    "classes": (
        "classifier",
        LABELLED,
        "serving_default with_options tokenize ids classify",
    ),
    "pairs": ("classifier", {"labels": LABELS} | PAIR, "serving_default with_options tokenize ids classify"),
    "either": ("classifier", {"labels": LABELS}, "serving_default with_options pair tokenize ids classify"),
    "numbers": ("regressor", PAIR, "serving_default with_options tokenize ids regress"),
    "vectors": (
        "embedder",
        {"prompts": {"query": "who is ", "none": ""}, "default_prompt_name": "query"},
        "serving_default tokenize ids with_options",
    ),
    "encoder": ("encoder", {}, "serving_default with_options tokenize ids"),
    "words": ("pretrainer", {}, "serving_default with_options tokenize ids fill_mask sentence_order"),
    "tags": ("token classifier", {"labels": ["a", "b", "O", "d"]}, "serving_default tokenize ids"),
    "spans": ("spans", {"null_threshold": 3.0}, "serving_default tokenize ids"),
    "joint": ("joint spans", {}, "serving_default tokenize ids"),
    "choices": ("multiple choice", {}, "serving_default tokenize ids"),
}


# Of the others there is another case of the same head; each is a conversion of its own.
BY_TEXT = [case for case in CASES if case != "pairs"]
BY_IDS = ("classes", "words", "choices")


SIGNATURES = some_slow([(case, name) for case in CASES for name in CASES[case][2].split()], BY_TEXT, "litert")


@pytest.fixture(scope="session")
def lite(lite_version):
    """lite(case, inputs): the signatures of that case's LiteRT version."""
    of = lambda case, inputs="text": signatures_of(LiteModel(lite_version(*CASES[case][:2], inputs=inputs)))  # noqa: E731
    return functools.cache(of)


def asked(signature, name):
    """Inputs of any signature."""
    random = np.random.default_rng(2)
    # The vocabulary has its piece 6 twice.
    ids = random.integers(7, 40, (4, 12), np.int32)
    values = {
        "text": TEXTS, "first": TEXTS, "second": TEXTS[::-1], "question": TEXTS, "context": CONTEXTS,
        "choices": [[b"cat", b"", b"the mat", b"film"], [b"a", b"the cat sat on the mat of " * 9, b"c", b"d"]] * 2,
        "prompt_name": [b"query", b"none", b"", b"query"],
        "ids": ids, "lengths": np.array([12, 5, 1, 3], np.int32), "skip_special_tokens": np.array([True, False] * 2),
        "input_ids": ids, "segment_ids": np.sort(random.integers(0, 2, (4, 12), np.int32)),
        "inputs": [example(text=text.decode(errors="replace"), first=text.decode(errors="replace"), second="mat")
                   for text in TEXTS],
        "truncate_left": np.array([False, True, False, True])
    }  # fmt: skip
    mask = np.arange(12) < values["lengths"][:, None]
    ids[0, 9:] = ids[0, 0]
    values |= {"input_mask": mask, "masked_lm_positions": np.array([[1, 11], [4, 0], [0, 0], [-1, 2]])}
    if name == "fill_mask":
        values["text"] = MASKED
    if name == "tokenize" and "context" not in signature.inputs:
        values["text"] = TEXTS
    if len(signature.inputs.get("input_ids", (0, ()))[1]) == 3:
        lengths = np.array([[12, 5, 0, 3]] * 4, np.int32)
        values |= {
            "input_ids": random.integers(5, 40, (4, 4, 12), np.int32), "segment_ids": np.zeros((4, 4, 12), np.int32),
            "lengths": lengths, "input_mask": np.arange(12) < lengths[..., None]
        }  # fmt: skip
    if name == "serving_default" and {"context", "choices"} <= signature.inputs.keys():
        values["question"] = [b"who _ the mat ?", b"what is", b"", b"_ or _"]
    return {key: np.array(values[key], dtype) for key, (dtype, _) in signature.inputs.items()}


def assert_same(name, found, expected):
    # The order of equally likely words is not promised.
    left_out = {"ids", "texts"} if name == "fill_mask" else ()
    assert_close(found, {key: values for key, values in expected.items() if key not in left_out}, atol=2e-4)


@pytest.mark.parametrize("case, name", SIGNATURES)
def test_a_signature_answers_as_that_of_the_saved_model(lite, serve, request, case, name):
    head, task, names = CASES[case]
    ours = lite(case)
    # To trace the functions would take ten times as long as to run them.
    request.getfixturevalue("eagerly")
    assert ours.keys() == set(names.split())
    _, served = serve(head, True, task=task, max_seq_length=40, doc_stride=5)
    signature, theirs = ours[name], served.signatures[name]
    inputs = asked(signature, name)
    assert signature.inputs.keys() == theirs.inputs.keys()
    assert signature.method == theirs.method
    found = signature.call(inputs, lambda: None)
    expected = served(name, **inputs)
    assert found.keys() == signature.outputs.keys() == expected.keys()
    for alias, (dtype, shape) in signature.outputs.items():
        assert found[alias].dtype == dtype and found[alias].ndim == len(shape), alias
        assert all(size in (-1, given) for size, given in zip(shape, found[alias].shape)), alias
    assert_same(name, found, expected)


OF_IDS = ("classes", "pairs", "vectors", "words", "tags", "spans", "joint", "choices")


@pytest.mark.parametrize("case", some_slow(OF_IDS, BY_IDS, "litert"))
def test_an_export_of_ids_answers_as_that_of_the_saved_model(lite, serve, request, case):
    head, task, _ = CASES[case]
    ours = lite(case, "ids")
    request.getfixturevalue("eagerly")
    _, served = serve(head, False, task=task, max_seq_length=40)
    assert ours.keys() == served.signatures.keys() - {"classify", "regress", "sparse", "tokens"}
    for name, signature in ours.items():
        inputs = asked(signature, name if name == "fill_mask" else "ids")
        if case in ("classes", "vectors", "tags") and "input_mask" in inputs:
            with refused("exported for single texts"):
                signature.call(inputs, lambda: None)
            inputs["segment_ids"] *= 0
        assert signature.inputs.keys() == served.signatures[name].inputs.keys()
        found, expected = signature.call(inputs, lambda: None), served(name, **inputs)
        assert found.keys() == signature.outputs.keys() == expected.keys()
        assert_same(name, found, expected)


@pytest.mark.parametrize("case, name", SIGNATURES)
def test_no_rows_are_no_answers(lite, case, name):
    signature = lite(case)[name]
    inputs = {
        alias: np.zeros([0, *np.maximum(shape[1:], 4)], dtype) for alias, (dtype, shape) in signature.inputs.items()
    }
    found = signature.call(inputs, lambda: None)
    for alias, (dtype, shape) in signature.outputs.items():
        assert (len(found[alias]), found[alias].dtype, found[alias].ndim) == (0, dtype, len(shape)), alias


@pytest.mark.parametrize("family", ["albert", "roberta"])
@pytest.mark.parametrize("size", [0, 1, 5, 9, 23, 60])
@pytest.mark.parametrize("length, stride, asked", [(12, 3, 2), (12, 128, 9), (20, 5, 0), (20, 4, 30)])
def test_windows(tokenizer_of, family, size, length, stride, asked):
    texts = [np.arange(7, 7 + count, dtype=np.int32) for count in (asked, size)]
    ragged = [tf.RaggedTensor.from_row_lengths(ids, [len(ids)]) for ids in texts]
    expected = Framer(tokenizer_of(family), length).windows(*ragged, stride, 6)
    found = list(LiteFramer(tokenizer_of(family), length).windows(*texts, stride, 6))
    for name in ("input_ids", "segment_ids"):
        assert getattr(expected.rows, name).to_list() == [window.row[name].tolist() for window in found]
    assert [int(window.row["lengths"]) for window in found] == [len(window.row["input_ids"]) for window in found]
    for name in ("first_token", "first_column", "size"):
        assert getattr(expected, name).numpy().tolist() == [getattr(window, name) for window in found]
    is_best = [row[window.first_column :][: window.size] for row, window in zip(expected.is_best.to_list(), found)]
    assert is_best == [window.is_best.tolist() for window in found]
