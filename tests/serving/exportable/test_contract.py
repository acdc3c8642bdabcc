"""The contract of exports: whatever a model is and however rows come in, it answers as its Keras model does.

Numbers are compared where signatures run eagerly; the last tests run what is saved, as graphs.
"""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.loading.answers import predict
from albert_tf.loading.load import Loaded
from serving.check import different_lengths, expected_answers
from serving.client.messages import join_batches
from serving.exportable import PREDICT
from serving.exportable.samples import sample_inputs
from tests.serving.conftest import assert_close, example

pytestmark = pytest.mark.usefixtures("eagerly")
HEADS = ("classifier", "regressor", "spans", "joint spans", "multiple choice", "token classifier", "embedder",
         "cls embedder", "sparse embedder", "encoder", "pretrainer")  # fmt: skip
MEMBERS = [*((head, "albert") for head in (*HEADS, "exiting classifier")), ("spans", "xlnet"),
           ("multiple choice", "xlnet"), ("permutation pretrainer", "xlnet"), ("classifier", "remembering xlnet"),
           ("encoder", "roberta")]  # fmt: skip
FIRST = ["The Café is 2,000 mats (two)", "", "paris  \t<s>", "the cat sat in the river of france and the film is " * 4]
SECOND = ["", "in paris", "what is the capital of france " * 5, "a fine river runs in the capital " * 5]
MASKED = {"text": ["the MASK sat in the film", "MASKMASK is a fine river"]}
WORDS = {"text": ["  the  Café\tsat", "paris 漢字 xyz in the mat of who " * 3, "cat \u200d sat"]}
ASKED = {
    "question": ["What is the capital of France?", "who sat?", "what?", "the", "what river runs " * 12],
    "context": [
        "Paris is the capital of France. " + "Two thousand cats sat in the Café (a fine one) of 2,000 mats. " * 3,
        "the cat sat", "", " \t What  ?  \n the  cat   ", "a fine river runs in Paris " * 12
    ]
}  # fmt: skip
SINGLE, PAIR = {"text": FIRST}, {"first": FIRST, "second": SECOND}


@pytest.mark.parametrize("head, family", MEMBERS)
def test_ids_are_answered_as_by_the_keras_model(serve, head, family):
    model, served = serve(head, family=family)
    inputs = different_lengths(served.exportable)
    ids, lengths = inputs["input_ids"], inputs["lengths"][..., None]
    places = np.arange(ids.shape[-1])
    has_segments = family.endswith("xlnet") or head in ("spans", "joint spans", "multiple choice")
    assert ("segment_ids" in inputs) == has_segments
    if family.endswith("xlnet"):
        # [CLS] is a segment of its own, and last.
        inputs["segment_ids"] = np.where(places == lengths - 1, 2, inputs["segment_ids"])
    answers = served(**inputs)
    assert_close(answers, expected_answers(model, inputs))
    # By a mask in place of lengths, in either type of numbers.
    by_mask = {"input_mask": places < lengths, "segment_ids": 0 * ids} | inputs
    for name in ("masked", "int64"):
        found = served(name, **by_mask)
        assert found.keys() == answers.keys()
        assert_close(found, answers)


PADDED = [*((head, "albert") for head in ("spans", "multiple choice", "embedder", "encoder", "pretrainer",
                                          "exiting regressor", "exiting token classifier")),
          ("spans", "xlnet"), ("classifier", "remembering xlnet"), ("words alone", "roberta")]  # fmt: skip


@pytest.mark.parametrize("head, family", PADDED)
def test_what_a_server_pads_with_changes_nothing(serve, head, family):
    """A server makes requests of one batch equally long with each request's own first elements."""
    _, served = serve(head, family=family)
    left_out = {"int64", "masked"} if family.endswith("xlnet") else {"int64"}
    for signature in served.signatures.keys() - left_out:
        description = served.signatures[signature]
        if description.method != PREDICT:
            continue
        requests = [sample_inputs(served.exportable, description, length, seed=length) for length in (9, 5, 14)]
        joined = {name: np.concatenate([_padded(one[name], requests[2][name].shape) for one in requests])
                  for name in requests[0]}  # fmt: skip
        together = served(signature, **joined)
        for row, request in enumerate(requests):
            alone = served(signature, **request)
            assert alone.keys() == together.keys()
            assert_close(together, alone, slice(row, row + 1))


def _padded(values, shape):
    padding = [(0, wanted - size) for size, wanted in zip(values.shape, shape)]
    return np.pad(values, padding, constant_values=values.flat[0])


def shares(answers, ours):
    return answers["probabilities"], np.array([list(one["probabilities"].values()) for one in ours])


def labels(answers, ours):
    """Words beyond the longest row have no label. Their places: see the LiteRT versions' signatures."""
    found = [list(zip(*row)) for row in zip(answers["words"].tolist(), answers["labels"].tolist())]
    expected = [[(word.encode(), (label or "").encode()) for word, label in row] for row in ours]
    assert [row[: len(other)] for row, other in zip(found, expected)] == expected
    return answers["probabilities"].sum(axis=-1), answers["labels"] != b""


def masks(answers, ours):
    pieces = [[[piece.encode() for piece, _ in best] for best in row] for row in ours]
    assert [row[: len(other)] for row, other in zip(answers["pieces"].tolist(), pieces)] == pieces
    expected = np.zeros_like(answers["probabilities"])
    for row, of_row in enumerate(ours):
        expected[row, : len(of_row)] = [[share for _, share in best] for best in of_row]
        assert set(answers["pieces"][row, len(of_row) :].ravel()) <= {b""}
    return answers["probabilities"], expected


def spans(answers, ours):
    """The best answers: a text may be proposed from several places, and Python proposes it once."""
    texts, present = answers["answer"].tolist(), answers["answer"] != b""
    assert texts == [one["answer"].encode() for one in ours] and not present.all()
    places = zip(ASKED["context"], answers["start"], answers["end"])
    assert texts == [context[start:end].strip().encode() for context, start, end in places]
    for name, key in (("score", "score"), ("no_answer_score", "null_odds")):
        assert_close(answers[name][present], np.array([one[key] for one in ours])[present], atol=1e-4)
    # What fills up is no score of -1e30.
    assert answers["scores"].min() == -1e4
    return answers["probabilities"], tf.nn.softmax(answers["scores"]) * (answers["answers"] != b"")


def vectors(answers, ours):
    return answers["embedding"], ours


# What is asked of each, how answers of an export are laid next to those of `Loaded.predict`, and of which families.
TEXTS = {
    "classifier": (SINGLE, shares, ("albert",)),
    "paired classifier": (PAIR, shares, ("albert", "xlnet", "roberta")),
    "paired regressor": (PAIR, lambda answers, ours: (answers["value"], np.array(ours)), ("sentencepiece",)),
    "token classifier": (WORDS, labels, ("albert", "sentencepiece", "roberta")),
    "encoder": (SINGLE, vectors, ("xlnet",)),
    "cls embedder": (SINGLE, vectors, ("albert",)),
    "pretrainer": (MASKED, masks, ("albert",)),
    "words alone": (MASKED, masks, ("roberta",)),
    "spans": (ASKED, spans, ("albert", "roberta")),
    "joint spans": (ASKED, spans, ("xlnet",)),
}


WAYS = [(kind, family) for kind in TEXTS for family in TEXTS[kind][2]]


@pytest.mark.parametrize("kind, family", WAYS)
def test_texts_are_answered_as_python_does(serve, tokenizer_of, kind, family):
    inputs, lay_out, _ = TEXTS[kind]
    pairs = {"inputs": list(inputs)} if kind.startswith("paired") else {}
    model, served = serve(kind.removeprefix("paired "), True, family, max_seq_length=20, task=pairs)
    mask = served.exportable.framer.mask
    asked = {name: [text.replace("MASK", mask) for text in texts] for name, texts in inputs.items()}
    loaded = Loaded(model, tokenizer_of(family), pairs | {"max_seq_length": 20})
    ours = predict(loaded, *asked.values(), *([None] if len(asked) == 1 else []), 8)
    assert_close(*lay_out(served("fill_mask" if inputs is MASKED else "serving_default", **asked), ours))


def test_an_example_without_one_of_the_texts_is_refused(serve):
    _, served = serve("classifier", True, task={"inputs": ["premise", "hypothesis"]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="second"):
        served("classify", inputs=[example(first="the cat")])


@pytest.mark.parametrize(
    "head",
    [
        "token classifier",
        *(pytest.param(head, marks=pytest.mark.slow) for head in ("pretrainer", "spans", "multiple choice")),
    ],
)
def test_answers_to_parts_of_a_request_are_those_to_the_whole_and_no_rows_give_none(serve, head):
    """As the client joins them; rows of one part are shorter than those of another."""
    _, served = serve(head, True, max_seq_length=24)
    parts = [np.array([3, 0]), np.array([2, 1]), np.array([4])]
    texts = np.array(["a fine [MASK] film runs in paris", "fine", "", "who [MASK] sat in [MASK] cat", "two"], object)
    for name in served.signatures.keys() - {"ids"}:
        specs = served.signatures[name].inputs
        inputs = {key: texts if spec.dtype == tf.string else np.ones(5, bool) for key, spec in specs.items()}
        if "choices" in inputs:
            inputs["choices"] = np.tile(texts[:, None], 4)
        whole = served(name, **inputs)
        answers = [served(name, **{key: values[rows] for key, values in inputs.items()}) for rows in parts]
        joined = join_batches(answers, parts)
        assert {key: value.shape for key, value in joined.items()} == {key: value.shape for key, value in whole.items()}
        assert_close(joined, whole)
        assert {len(values) for values in served(name, **{key: v[:0] for key, v in inputs.items()}).values()} == {0}


def test_what_is_saved_answers_as_its_functions_do(exported, functions_of):
    """Of one row and of several. The other EXPORTS are asked of a server (model_server/test_exports.py)."""
    served = functions_of("xlnet")
    signatures = tf.saved_model.load(str(exported("xlnet"))).signatures
    assert signatures.keys() == served.signatures.keys()
    for name in ("serving_default", "masked"):
        for rows in (1, 3):
            signature = served.signatures[name]
            inputs = sample_inputs(served.exportable, signature, 14, rows)
            tensors = {key: tf.constant(inputs[key], spec.dtype) for key, spec in signature.inputs.items()}
            found = {key: value.numpy() for key, value in signatures[name](**tensors).items()}
            expected = served(name, **inputs)
            assert_close(found, expected)
            assert_close(expected, found)
