"""XLNet: padding may be in front, and documents go on from request to request. The rest is in the contract."""

import numpy as np
import pytest

from serving.exportable import ExportOptions, make_exportable

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.mark.parametrize("head", ["classifier", "multiple choice", "spans"])
def test_padding_may_be_in_front(serve, head):
    model, asked = serve(head, family="xlnet")
    rng = np.random.default_rng(0)
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


def test_documents_go_on_from_request_to_request(serve, make_model):
    model = make_model("encoder", family="xlnet", attention_type="uni", memory_length=20)
    _, asked = serve(model, max_seq_length=20)
    ids = np.random.default_rng(0).integers(0, 60, (1, 20))
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


SIGNATURES = {
    ("classifier", "remembering xlnet"): {"serving_default", "classify", "masked", "int64", "stateful"},
    # Rows of windows are no answers that another row could follow.
    ("spans", "remembering xlnet"): {"serving_default", "masked", "int64"},
    ("classifier", "xlnet"): {"serving_default", "classify", "masked", "int64"},
    # Words for masks come of its query stream, which exports do not compute.
    ("permutation pretrainer", "xlnet"): {"serving_default", "tokens", "masked", "int64"},
    ("exiting classifier", "albert"): {"serving_default", "early_exit", "classify", "masked", "int64"},
    ("pretrainer", "albert"): {"serving_default", "fill_mask", "sparse", "sentence_order", "masked", "int64"},
}


@pytest.mark.parametrize(("head", "family"), SIGNATURES)
def test_every_model_offers_what_it_can_answer(make_model, head, family):
    names = make_exportable(make_model(head, family=family), ExportOptions(24)).signatures().keys()
    assert names == SIGNATURES[head, family]
