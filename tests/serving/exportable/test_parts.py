"""Answers to parts of a request, joined as the client joins them, are the answer to the whole."""

import numpy as np
import pytest

from serving.client.messages import join_batches

TEXTS = ["a fine [MASK] film runs in paris", "fine", "", "who [MASK] sat in [MASK] cat", "the end of the river", "two"]
PARTS = [np.array([3, 0]), np.array([2, 1]), np.array([4]), np.array([5])]


def ask_in_parts(served, signature: str, inputs: dict) -> tuple[dict, dict]:
    parts = [served(signature, **{name: values[rows] for name, values in inputs.items()}) for rows in PARTS]
    return served(signature, **inputs), join_batches(parts, PARTS)


def assert_close(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert found.shape == expected.shape and found.dtype == expected.dtype, name
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
    else:
        assert found.tolist() == expected.tolist(), name


# Each traces a signature; spans, whose places are not filled with zeros, are tried below.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "signature", "ragged"),
    [("token classifier", "serving_default", "labels"), ("pretrainer", "fill_mask", "pieces"),
     ("pretrainer", "sparse", "weights"), ("embedder", "tokens", "sequence_output")],
)  # fmt: skip
def test_texts(serve, head, signature, ragged):
    _, served = serve(head, text=True)
    whole, joined = ask_in_parts(served, signature, {"text": np.array([text.encode() for text in TEXTS], object)})
    assert len({served(signature, text=np.array([text.encode()]))[ragged].shape for text in TEXTS}) > 1
    for name, expected in whole.items():
        assert_close(joined[name], expected, name)


def test_spans_over_ids(serve):
    _, served = serve("spans")
    lengths = np.array([12, 4, 3, 14, 9, 5])
    ids = np.random.default_rng(0).integers(5, 40, (6, 14)) * (np.arange(14) < lengths[:, None])
    ids[:, 0] = 2
    segments = (np.arange(14) > 1) & (np.arange(14) < lengths[:, None])
    inputs = {"input_ids": ids, "lengths": lengths, "segment_ids": segments.astype(int)}
    whole, joined = ask_in_parts(served, "serving_default", inputs)
    assert len(set(whole["num_spans"])) > 1 and whole["start_log_probs"].min() < -1e29
    for name, expected in whole.items():
        assert_close(joined[name], expected, name)
