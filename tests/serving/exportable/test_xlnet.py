"""XLNet behind ids and strings: rows that end with [CLS] are answered as by the Keras model, document by document."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import XlnetPretrainer
from albert_tf.answers import predict
from albert_tf.loading import Loaded
from serving import check as check_module
from serving.check import different_lengths, expected_answers
from serving.exportable import ExportOptions, make_exportable
from serving.inference import InferenceOptions
from tests.serving.conftest import Served
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.framing import Framer, encode

FIRST = ["the Café is 2,000 mats (two)", "", "the cat sat in the river of france and the film is dull " * 4]
SECOND = ["in paris", "", "a fine river"]
HEADS = ("classifier", "regressor", "spans", "joint spans", "multiple choice", "token classifier", "embedder",
         "cls embedder", "encoder", "pretrainer")  # fmt: skip
QUICK = ("classifier", "joint spans", "multiple choice", "token classifier", "cls embedder")
heads = pytest.mark.parametrize("head", [h if h in QUICK else pytest.param(h, marks=pytest.mark.slow) for h in HEADS])


@pytest.fixture(scope="module")
def make_xlnet(make_model):
    return lambda head, **changes: make_model(head, position_type="relative", type_vocab_size=4, **changes)


@pytest.fixture(scope="module")
def xlnet_tokenizer(tokenizer):
    return tokenizer.with_cls_last(True)


def served(model, tokenizer=None, length=24, **options):
    return Served(make_exportable(model, ExportOptions(length, tokenizer, **options)))


def assert_expected(model, inputs, answers):
    expected = expected_answers(model, inputs)
    assert expected and expected.keys() <= answers.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(np.maximum(answers[name], -1e9), np.maximum(values, -1e9), atol=2e-5)


@heads
@pytest.mark.few(2)
def test_rows_of_different_lengths_are_answered_as_by_the_model(make_xlnet, head):
    model = make_xlnet(head)
    asked = served(model)
    inputs = different_lengths(asked.exportable)
    last = inputs["lengths"][..., None] - 1
    inputs["segment_ids"] = np.where(np.arange(24) == last, 2, inputs["segment_ids"])
    assert_expected(model, inputs, asked("serving_default", **inputs))


@pytest.mark.parametrize("head", ["classifier", "multiple choice", pytest.param("spans", marks=pytest.mark.slow)])
@pytest.mark.few(1)
def test_padding_may_be_in_front(make_xlnet, head):
    model = make_xlnet(head)
    asked, rng = served(model), np.random.default_rng(0)
    sizes = np.array([7, 3, 5, 1]) if head == "multiple choice" else np.array([7, 3])
    mask = np.arange(7) >= 7 - sizes[:, None]
    ids, segments = rng.integers(5, 60, mask.shape) * mask, np.where(mask, rng.integers(0, 2, mask.shape), 3)
    rows = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    turned = {name: np.array([np.roll(row, size) for row, size in zip(rows[name], sizes)]) for name in rows}
    if head == "multiple choice":
        rows, turned = ({name: value.reshape(1, 4, 7) for name, value in one.items()} for one in (rows, turned))
    found = asked("masked", **rows)
    behind = {"input_ids": turned["input_ids"], "segment_ids": turned["segment_ids"] * turned["input_mask"]}
    behind["lengths"] = turned["input_mask"].sum(axis=-1)
    for name, values in asked("serving_default", **behind).items():
        if name in ("logits", "no_answer_score"):
            np.testing.assert_allclose(found[name], values, atol=1e-5)
    features = {name: value.astype("int32") for name, value in rows.items()}
    if head == "spans":
        starts = np.asarray(model(features)["start_log_probs"])
        np.testing.assert_allclose(np.maximum(found["start_log_probs"], -1e9), np.maximum(starts, -1e9), atol=1e-5)
    else:
        np.testing.assert_allclose(found["logits"], model(features), atol=1e-5)


@pytest.mark.slow
def test_pairs_of_texts_are_classified_as_by_the_model(make_xlnet, xlnet_tokenizer):
    model, task = make_xlnet("classifier"), {"inputs": ["premise", "hypothesis"], "max_seq_length": 24}
    asked = served(model, xlnet_tokenizer, task=task)
    tokens = asked("tokenize", first=FIRST, second=SECOND)
    row = [*xlnet_tokenizer.encode(FIRST[0]), 3, *xlnet_tokenizer.encode(SECOND[0]), 3, 2]
    assert tokens["input_ids"][0][: len(row)].tolist() == row
    assert tokens["segment_ids"][0][: len(row)].tolist() == [0] * (len(row) - 4) + [1, 1, 1, 2]
    ours = predict(Loaded(model, xlnet_tokenizer, task), FIRST, SECOND, 8)
    found = asked("serving_default", first=FIRST, second=SECOND)["probabilities"]
    np.testing.assert_allclose(found, [list(one["probabilities"].values()) for one in ours], atol=1e-5)


def test_answers_are_found_in_contexts_as_by_the_model(make_xlnet, xlnet_tokenizer):
    model = make_xlnet("joint spans")
    asked = served(model, xlnet_tokenizer)
    contexts, questions = ["the cat sat in the river " * 5, "a Café in paris", "x"], ["who sat", "the what?", ""]
    found = asked("serving_default", question=questions, context=contexts)
    ours = predict(Loaded(model, xlnet_tokenizer, {"max_seq_length": 24}), questions, contexts, 8)
    np.testing.assert_allclose(found["score"], [one["score"] for one in ours], atol=1e-4)
    answers = [context[a:b] for context, a, b in zip(contexts, found["start"], found["end"])]
    assert answers == [answer.decode() for answer in found["answer"]]


def test_words_are_tagged_from_the_first_column_on(make_xlnet, xlnet_tokenizer):
    model = make_xlnet("token classifier")
    asked = served(model, xlnet_tokenizer, 12)
    texts = ["the  cat sat", "", "paris cat " * 9]
    answers = asked("serving_default", text=texts)
    rows = Framer(xlnet_tokenizer, 12).single(encode(xlnet_tokenizer, texts))
    batch = rows.padded()
    by_ids = asked("ids", input_ids=batch.input_ids, lengths=batch.lengths, segment_ids=batch.segment_ids)["logits"]
    np.testing.assert_allclose(answers["logits"][0, :3], by_ids[0, :3], atol=1e-5)
    np.testing.assert_allclose(answers["logits"][2, :10], by_ids[2, :10], atol=1e-5)
    labels = answers["labels"]
    assert [(row != b"").sum() for row in labels] == [3, 0, 10]


@pytest.mark.parametrize("compute", ["float32", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("head", ["token classifier", pytest.param("multiple choice", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_check_of_an_export_reads_what_the_export_does(make_xlnet, xlnet_tokenizer, head, compute, monkeypatch):
    model = make_xlnet(head, memory_length=8)
    asked = served(model, xlnet_tokenizer, inference=InferenceOptions(compute))
    monkeypatch.setattr(check_module, "run_calls", lambda _, calls: [asked(name, **inputs) for name, inputs in calls])
    differences = check_module.check(None, model, asked.exportable)
    assert differences.keys() >= ({"logits", "text logits", "stateful logits"} if "token" in head else {"logits"})
    assert compute == "int8" or max(differences.values()) < 1e-5


def test_documents_go_on_from_request_to_request(make_xlnet):
    model = make_xlnet("encoder", attention_type="uni", memory_length=20)
    asked, ids = served(model, length=20), np.random.default_rng(0).integers(0, 60, (1, 20))
    whole = asked("tokens", input_ids=ids, lengths=[20], segment_ids=0 * ids)["sequence_output"]
    last = asked("serving_default", input_ids=ids, lengths=[20], segment_ids=0 * ids)["pooled_output"]
    memory, parts = {"memory": np.zeros((1, 2, 20, 16)), "memory_lengths": [0]}, []
    for first in range(0, 20, 8):
        window = ids[:, first : first + 8]
        inputs = {"input_ids": window, "lengths": [window.size], "segment_ids": 0 * window}
        answers = asked("stateful", **inputs, **memory)
        memory = {name: answers[name] for name in memory}
        assert memory["memory"].shape == (1, 2, 20, 16)
        parts.append(answers["sequence_output"])
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)
    np.testing.assert_allclose(answers["pooled_output"], last, atol=1e-5)
    assert memory["memory_lengths"].tolist() == [20]


@pytest.mark.parametrize("head", ["classifier", "spans"])
def test_only_rows_that_are_answers_go_on(make_xlnet, head):
    names = make_exportable(make_xlnet(head, memory_length=8), ExportOptions(24)).signatures().keys()
    assert ("stateful" in names) == (head == "classifier")
    assert "stateful" not in make_exportable(make_xlnet(head), ExportOptions(24)).signatures()


def test_a_permutation_pretrainer_is_exported_as_its_encoder(make_xlnet):
    """Words for masks come of its query stream, which exports do not compute."""
    asked = served(XlnetPretrainer(make_xlnet("encoder")))
    assert set(asked.signatures) == {"serving_default", "tokens", "masked", "int64"}
    inputs = different_lengths(asked.exportable)
    assert_expected(make_xlnet("encoder"), inputs, asked("serving_default", **inputs))


def test_early_exit_by_movement_is_refused(make_xlnet):
    with pytest.raises(UserError, match="early exit by movement is not offered with relative positions"):
        make_exportable(make_xlnet("embedder"), ExportOptions(24, exit_rule="movement"))


@pytest.mark.slow
def test_an_export_is_loaded_checked_and_says_what_it_remembers(make_xlnet, export_model):
    model = make_xlnet("classifier", memory_length=8)
    version = export_model(model, {"labels": list("abc"), "inputs": ["text"]}, inputs="text", check=True,
                           warm_up_signatures="serving_default,stateful", max_seq_length=24)  # fmt: skip
    manifest = files.read_json(version / "assets.extra/manifest.json")
    assert manifest["memory"]["first_row"] == "zeros, with memory_lengths 0" and max(manifest["check"].values()) < 1e-5
    assert manifest["signatures"]["stateful"]["memory"] == "float32 [any, 2, 8, 16]"
    loaded = tf.saved_model.load(str(version))
    assert loaded.signatures["stateful"].structured_outputs["memory_lengths"].dtype == tf.int32
