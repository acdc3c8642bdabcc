"""The contract of exports: whatever a model is and however rows come in, it answers as its Keras model does.

Numbers are compared where signatures run eagerly; the last tests run what is saved, as graphs.
"""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.answers import predict
from albert_tf.loading import Loaded
from serving.check import different_lengths, expected_answers
from serving.client.messages import join_batches
from serving.exportable import PREDICT
from serving.inference import InferenceOptions
from serving.samples import sample_inputs
from tests.serving.conftest import EXPORTS
from tfrecords.framing import Framer, encode

pytestmark = pytest.mark.usefixtures("eagerly")
HEADS = ("classifier", "regressor", "spans", "joint spans", "multiple choice", "token classifier", "embedder",
         "cls embedder", "encoder", "pretrainer")  # fmt: skip
EXITING = ("exiting classifier", "exiting regressor", "exiting token classifier", "learned classifier")
MEMBERS = [*((head, "albert") for head in (*HEADS, *EXITING)), *((head, "xlnet") for head in HEADS),
           ("permutation pretrainer", "xlnet"), ("classifier", "remembering xlnet"),
           ("classifier", "roberta"), ("encoder", "roberta"), ("words alone", "roberta")]  # fmt: skip
FIRST = ["The Café is 2,000 mats (two)", "", "paris  \t<s>", "the cat sat in the river of france and the film is " * 4]
SECOND = ["", "in paris", "what is the capital of france " * 5, "a fine river runs in the capital " * 5]
MASKED = {"text": ["the MASK sat in the film", "MASKMASK is a fine river"]}
WORDS = {"text": ["  the  Café\tsat", "paris 漢字 xyz in the mat of who " * 3, "cat \u200d sat"]}
SINGLE, PAIR = {"text": FIRST}, {"first": FIRST, "second": SECOND}


def assert_close(found: dict, expected: dict, rows=slice(None)) -> None:
    """Every expected output is found; where rows of a batch are longer than alone, what lies beyond is not compared."""
    assert expected and expected.keys() <= found.keys()
    for name, values in expected.items():
        answers = found[name][rows][tuple(slice(size) for size in values.shape)]
        if values.dtype.kind == "f":
            np.testing.assert_allclose(np.maximum(answers, -1e9), np.maximum(values, -1e9), atol=2e-5, err_msg=name)
        else:
            assert answers.tolist() == values.tolist(), name


def rows_of(exportable) -> dict:
    """Rows of different lengths, and with [CLS] last where it is there."""
    inputs = different_lengths(exportable)
    if exportable.encoder.config.ends_with_cls:
        places = np.arange(inputs["input_ids"].shape[-1])
        inputs["segment_ids"] = np.where(places == inputs["lengths"][..., None] - 1, 2, inputs["segment_ids"])
    return inputs


@pytest.mark.parametrize(("head", "family"), MEMBERS)
def test_ids_are_answered_as_by_the_keras_model(serve, head, family):
    model, served = serve(head, family=family)
    inputs = rows_of(served.exportable)
    answers = served("serving_default", **inputs)
    assert_close(answers, expected_answers(model, inputs))
    # By a mask in place of lengths, in either type of numbers.
    ids = inputs["input_ids"]
    mask = np.arange(ids.shape[-1]) < inputs["lengths"][..., None]
    by_mask = {"input_ids": ids, "input_mask": mask, "segment_ids": inputs.get("segment_ids", 0 * ids)}
    for name in ("masked", "int64"):
        found = served(name, **by_mask)
        assert found.keys() == answers.keys()
        assert_close(found, answers)
    assert ("segment_ids" in inputs) == (
        family.endswith("xlnet") or head in ("spans", "joint spans", "multiple choice")
    )


@pytest.mark.parametrize(("head", "family"), MEMBERS)
def test_what_a_server_pads_with_changes_nothing(serve, head, family):
    """A server makes requests of one batch equally long with each request's own first elements."""
    _, served = serve(head, family=family)
    for signature, description in served.signatures.items():
        if description.method != PREDICT or (family.endswith("xlnet") and signature in ("masked", "int64")):
            continue
        short = _padded_by_the_client(sample_inputs(served.exportable, description, 9, 2, seed=1))
        long = sample_inputs(served.exportable, description, 14, seed=2)
        joined = {name: np.concatenate([_pad_as_a_server(short[name], long[name].shape), long[name]]) for name in short}
        together = served(signature, **joined)
        for rows, request in ((slice(0, 2), short), (slice(2, 3), long)):
            alone = served(signature, **request)
            assert alone.keys() == together.keys()
            assert_close(together, alone, rows)


def _padded_by_the_client(inputs: dict) -> dict:
    """The second row shorter, with another first id than the first row's; of choices the last one empty."""
    ids = inputs["input_ids"]
    lengths = np.full(ids.shape[:-1], ids.shape[-1])
    lengths[1], ids[1, ..., 0] = 5, 7
    if lengths.ndim == 2:
        lengths[:, -1] = 0
    mask = np.arange(ids.shape[-1]) < lengths[..., None]
    own = {"lengths": lengths, "input_mask": mask.astype(ids.dtype)}
    return inputs | {"input_ids": ids * mask} | {name: value for name, value in own.items() if name in inputs}


def _pad_as_a_server(values: np.ndarray, shape: tuple) -> np.ndarray:
    padding = [(0, wanted - size) if axis else (0, 0) for axis, (size, wanted) in enumerate(zip(values.shape, shape))]
    return np.pad(values, padding, constant_values=values.flat[0])


def shares(answers, ours):
    return answers["probabilities"], np.array([list(one["probabilities"].values()) for one in ours])


def labels(answers, ours):
    """Words beyond the longest row have no label; where a word starts and ends is said in characters."""
    found = [list(zip(*row)) for row in zip(answers["words"].tolist(), answers["labels"].tolist())]
    expected = [[(word.encode(), (label or "").encode()) for word, label in row] for row in ours]
    assert [row[: len(other)] for row, other in zip(found, expected)] == expected
    for row, text in enumerate(WORDS["text"]):
        places = zip(answers["words"][row], answers["starts"][row], answers["ends"][row])
        assert [text[start:end] for word, start, end in places if word] == text.split()
    named = answers["labels"] != b""
    assert (answers["logits"].argmax(axis=-1)[named] == answers["labels"][named].astype(int)).all()
    return answers["probabilities"].sum(axis=-1), named


def masks(answers, ours):
    pieces = [[[piece.encode() for piece, _ in best] for best in row] for row in ours]
    assert [row[: len(other)] for row, other in zip(answers["pieces"].tolist(), pieces)] == pieces
    expected = np.zeros_like(answers["probabilities"])
    for row, of_row in enumerate(ours):
        expected[row, : len(of_row)] = [[share for _, share in best] for best in of_row]
        assert set(answers["pieces"][row, len(of_row) :].ravel()) <= {b""}
    return answers["probabilities"], expected


# What is asked of each, and how answers of an export are laid next to those of `Loaded.predict`.
TEXTS = {
    "classifier": (SINGLE, shares), "paired classifier": (PAIR, shares),
    "paired regressor": (PAIR, lambda answers, ours: (answers["value"], np.array(ours))),
    "token classifier": (WORDS, labels), "encoder": (SINGLE, lambda answers, ours: (answers["embedding"], ours)),
    "cls embedder": (SINGLE, lambda answers, ours: (answers["embedding"], ours)), "pretrainer": (MASKED, masks),
    "words alone": (MASKED, masks),
}  # fmt: skip


@pytest.mark.parametrize("family", ["albert", "sentencepiece", "xlnet", "roberta"])
@pytest.mark.parametrize("kind", TEXTS)
def test_texts_are_answered_as_python_does(serve, tokenizer_of, kind, family):
    if ("pretrainer" in kind and family in ("xlnet", "roberta")) or (kind == "words alone" and family == "xlnet"):
        pytest.skip("has no words for masks, or no pairs to put in order")
    inputs, lay_out = TEXTS[kind]
    pairs = {"inputs": list(inputs)} if kind.startswith("paired") else {}
    for padding in ("skipped", "computed"):
        options = {"task": pairs, "inference": InferenceOptions(padding=padding)}
        model, served = serve(kind.removeprefix("paired "), True, family, max_seq_length=20, **options)
        mask = served.exportable.framer.mask
        asked = {name: [text.replace("MASK", mask) for text in texts] for name, texts in inputs.items()}
        loaded = Loaded(model, tokenizer_of(family), pairs | {"max_seq_length": 20})
        ours = predict(loaded, *asked.values(), *([None] if len(asked) == 1 else []), 8)
        signature = "fill_mask" if inputs is MASKED else "serving_default"
        found, expected = lay_out(served(signature, **asked), ours)
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=padding)


FRAMED = {
    "albert": lambda first, second: ([2, *first, 3, *second, 3], [0] * (len(first) + 2) + [1] * (len(second) + 1)),
    "xlnet": lambda first, second: (
        [*first, 3, *second, 3, 2], [0] * (len(first) + 1) + [1] * (len(second) + 1) + [2]
    ),
    "roberta": lambda first, second: ([0, *first, 2, 2, *second, 2], [0] * (len(first) + len(second) + 4)),
}  # fmt: skip


@pytest.mark.parametrize("family", FRAMED)
def test_pairs_of_texts_become_the_rows_of_the_family(serve, tokenizer_of, family):
    tokenizer = tokenizer_of(family)
    _, served = serve("classifier", True, family, max_seq_length=20, task={"inputs": ["first", "second"]})
    pairs = {"first": ["paris", "the cat", ""], "second": ["", "a mat", "in"]}
    tokens = served("tokenize", **pairs)
    for row, texts in enumerate(zip(*pairs.values())):
        ids, segments = FRAMED[family](*map(tokenizer.encode, texts))
        assert tokens["lengths"][row] == len(ids)
        assert tokens["input_ids"][row].tolist() == ids + [tokenizer.pad_id] * (tokens["input_ids"].shape[1] - len(ids))
        assert tokens["segment_ids"][row, : len(ids)].tolist() == segments
        assert [piece.decode() for piece in tokens["pieces"][row] if piece] == [tokenizer.pieces[one] for one in ids]


@pytest.mark.parametrize("family", FRAMED)
@pytest.mark.parametrize("limit", [8, 19])
def test_rows_are_cut_as_in_fine_tuning_and_ids_give_the_same_answers(serve, tokenizer_of, family, limit):
    tokenizer = tokenizer_of(family)
    texts = {"first": [a for a in FIRST for _ in SECOND], "second": SECOND * len(FIRST)}
    _, served = serve("classifier", True, family, max_seq_length=limit, task={"inputs": ["premise", "hypothesis"]})
    framed = Framer(tokenizer, limit).pair(*(encode(tokenizer, column) for column in texts.values())).padded()
    rows = {name: getattr(framed, name).numpy() for name in ("input_ids", "lengths", "segment_ids")}
    by_ids = served("ids", **rows)
    assert_close(served("serving_default", **texts), by_ids)
    assert_close(served("tokenize", **texts), rows)
    examples = [_example(first=a, second=b) for a, b in zip(*texts.values())]
    assert_close(served("classify", inputs=examples), {"scores": by_ids["probabilities"]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="second"):
        served("classify", inputs=[_example(first="the cat")])


def _example(**texts) -> bytes:
    example = tf.train.Example()
    for name, value in texts.items():
        example.features.feature[name].bytes_list.value.append(value.encode())
    return example.SerializeToString()


# Of a head the inputs of its text signature, and the texts of each row as tokens are counted.
QUESTIONS = {"question": ["what"] * 4, "choices": [["in paris", "the cat", ""]] * 4}
TRUNCATED = {
    "classifier": (SINGLE, {}, lambda row: [FIRST[row]]),
    "pretrainer": (SINGLE, {}, lambda row: [FIRST[row]]),
    "token classifier": (SINGLE, {}, lambda row: FIRST[row].split()),
    "multiple choice": (
        {"context": FIRST} | QUESTIONS, {"num_choices": 3},
        lambda row: [FIRST[row], "what in paris", FIRST[row], "what the cat"],
    ),
    "joint spans": (
        {"context": FIRST, "question": SECOND}, {"max_query_length": 8}, lambda row: [FIRST[row], SECOND[row]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("head", TRUNCATED)
def test_answers_say_how_many_tokens_were_not_read(serve, tokenizer, head):
    inputs, options, texts = TRUNCATED[head]
    _, served = serve(head, True, max_seq_length=20, **options)
    answers = served("serving_default", **inputs)
    whole = [sum(len(tokenizer.encode(text)) for text in texts(row)) for row in range(len(FIRST))]
    assert answers["text_tokens"].tolist() == whole
    # [CLS] and [SEP] take places too; of a context every token is read, of a question the first eight.
    if head == "joint spans":
        expected = [max(len(tokenizer.encode(text)) - 8, 0) for text in SECOND]
    else:
        expected = [max(size - (2 * 17 if head == "multiple choice" else 18), 0) for size in whole]
    assert answers["truncated_tokens"].tolist() == expected and max(expected) > 0
    tokens = served("tokenize", text=FIRST)
    assert tokens["text_tokens"].shape == tokens["truncated_tokens"].shape == (4,)


@pytest.mark.parametrize("head", ["embedder", "regressor"])
def test_a_single_output_stays_alone(serve, head):
    """REST would answer with objects in place of values."""
    _, served = serve(head, True, max_seq_length=20)
    assert len(served("serving_default", text=FIRST)) == 1
    assert served("tokenize", text=FIRST)["truncated_tokens"][3] > 0


@pytest.mark.parametrize(
    "head", ["token classifier", "pretrainer", "embedder", "spans", "classifier", "multiple choice"]
)
def test_answers_to_parts_of_a_request_are_those_to_the_whole_and_no_rows_give_none(serve, head):
    """As the client joins them; rows of one part are shorter than those of another."""
    _, served = serve(head, True, max_seq_length=24)
    parts = [np.array([3, 0]), np.array([2, 1]), np.array([4])]
    texts = np.array(["a fine [MASK] film runs in paris", "fine", "", "who [MASK] sat in [MASK] cat", "two"], object)
    for name, signature in served.signatures.items():
        if signature.method != PREDICT or name == "ids":
            continue
        shapes = {key: (5, *(size or 0 for size in spec.shape[1:])) for key, spec in signature.inputs.items()}
        inputs = {
            key: np.broadcast_to(texts.reshape(-1, *[1] * (len(shape) - 1)), shape) for key, shape in shapes.items()
        }
        inputs |= {key: np.full(5, 0.5) for key in inputs.keys() & {"threshold"}}
        whole = served(name, **inputs)
        answers = [served(name, **{key: values[rows] for key, values in inputs.items()}) for rows in parts]
        joined = join_batches(answers, parts)
        assert {key: value.shape for key, value in joined.items()} == {key: value.shape for key, value in whole.items()}
        assert_close(joined, whole)
        assert {len(values) for values in served(name, **{key: v[:0] for key, v in inputs.items()}).values()} == {0}


@pytest.mark.parametrize("name", [name for name in EXPORTS if name != "int8"])
def test_what_is_saved_answers_as_its_functions_do(exported, serve, name):
    """In graphs, of one row and of several; `int8`, whose products run in graphs alone, is asked of a server."""
    head, family, task, settings = EXPORTS[name]
    options = {key: value for key, value in settings.items() if key in ("max_seq_length", "doc_stride")}
    by_text = settings.get("inputs") == "text"
    _, served = serve(head, by_text, family, task=task or {}, **options)
    signatures = tf.saved_model.load(str(exported(name))).signatures
    assert signatures.keys() == served.signatures.keys()
    for signature in ("serving_default", "fill_mask", "stateful", "early_exit", "classify"):
        for rows in (1, 3) if signature in signatures else ():
            inputs = sample_inputs(served.exportable, served.signatures[signature], 14, rows)
            if signature == "fill_mask" and by_text:
                inputs = {"text": np.array([b"the [MASK] is [MASK]", b"[MASK]", b"none"][:rows], object)}
            specs = served.signatures[signature].inputs
            found = signatures[signature](**{key: tf.constant(inputs[key], specs[key].dtype) for key in inputs})
            found, expected = {key: value.numpy() for key, value in found.items()}, served(signature, **inputs)
            assert found.keys() == expected.keys()
            assert_close(found, expected)
            assert_close(expected, found)


@pytest.mark.usefixtures("in_graphs")
def test_choices_and_both_span_heads_answer_in_graphs_too(serve):
    for head, options in (("multiple choice", {"num_choices": 3}), ("joint spans", {"doc_stride": 5})):
        _, served = serve(head, True, max_seq_length=24, **options)
        inputs = sample_inputs(served.exportable, served.signatures["serving_default"], 40, 2)
        found = served("serving_default", **inputs)
        tf.config.run_functions_eagerly(True)
        assert_close(found, served("serving_default", **inputs))
        tf.config.run_functions_eagerly(False)
