"""What pre-training reports: means over words and pairs, whatever the batches; packed rows count as single ones."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer

pytestmark = pytest.mark.usefixtures("eagerly")

CONFIG = AlbertConfig(
    vocab_size=30, embedding_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
)
ROWS, LENGTH, PREDICTIONS = 7, 6, 3


def model(pair_task="sop"):
    pretrainer = AlbertPretrainer(AlbertEncoder(CONFIG), pair_task=pair_task)
    rng = np.random.default_rng(4)
    pretrainer.set_weights([("gamma" in w.path) + rng.normal(scale=0.5, size=w.shape) for w in pretrainer.weights])
    pretrainer.compile(keras.optimizers.SGD(0.0))
    return pretrainer


def features():
    rng = np.random.default_rng(2)
    return {
        "input_ids": rng.integers(5, 30, (ROWS, LENGTH)).astype("int32"),
        "masked_lm_positions": rng.integers(0, LENGTH, (ROWS, PREDICTIONS)).astype("int32"),
        "masked_lm_ids": rng.integers(5, 30, (ROWS, PREDICTIONS)).astype("int32"),
        "masked_lm_weights": (np.arange(PREDICTIONS) < rng.integers(0, 4, (ROWS, 1))).astype("float32"),
        "next_sentence_labels": rng.integers(0, 2, (ROWS, 1)).astype("int32"),
    }


@pytest.mark.parametrize("pair_task, prefix", [("sop", "sentence_order"), ("nsp", "next_sentence"), (None, None)])
@pytest.mark.few(2)
def test_metrics_do_not_depend_on_the_batches(pair_task, prefix):
    pretrainer, rows = model(pair_task), features()
    whole = pretrainer.evaluate(rows, batch_size=ROWS, verbose=0, return_dict=True)
    for batch_size in (2, 3):
        parts = pretrainer.evaluate(rows, batch_size=batch_size, verbose=0, return_dict=True)
        assert parts.keys() == whole.keys()
        for name, value in whole.items():
            assert_allclose(parts[name], value, rtol=1e-5, err_msg=name)
    names = {"loss", "masked_lm_loss", "masked_lm_accuracy"}
    assert set(whole) == names | ({f"{prefix}_loss", f"{prefix}_accuracy"} if prefix else set())

    logits = pretrainer.predict(rows, verbose=0)
    words = np.asarray(keras.ops.log_softmax(logits["masked_lm_logits"]))
    nll = -np.take_along_axis(words, rows["masked_lm_ids"][..., None], axis=-1)[..., 0]
    weights = rows["masked_lm_weights"]
    assert_allclose(whole["masked_lm_loss"], (nll * weights).sum() / weights.sum(), rtol=1e-4)
    right = (words.argmax(axis=-1) == rows["masked_lm_ids"]) * weights
    assert_allclose(whole["masked_lm_accuracy"], right.sum() / weights.sum(), rtol=1e-5)


def test_packed_rows_have_the_loss_and_metrics_of_single_ones():
    pretrainer, rows = model(), features()
    single = {name: value[:3] for name, value in rows.items()}
    # Examples 0 and 1 share a row; 2 has one of its own, whose second place is empty.
    empty = {name: np.zeros_like(value[:1]) for name, value in rows.items()}
    pairs = {name: np.stack([np.concatenate([value[0], value[1]]), np.concatenate([value[2], empty[name][0]])])
             for name, value in single.items()}  # fmt: skip
    numbers = np.array([[1] * LENGTH + [2] * LENGTH, [1] * LENGTH + [0] * LENGTH], "int32")
    pairs["masked_lm_positions"][0, PREDICTIONS:] += LENGTH
    pairs |= {"sequence_ids": numbers, "input_mask": (numbers > 0).astype("int32")}
    pairs |= {
        "sequence_starts": np.array([[0, LENGTH], [0, 0]], "int32"),
        "pair_weights": np.array([[1, 1], [1, 0]], "float32"),
    }
    expected = pretrainer.evaluate(single, batch_size=3, verbose=0, return_dict=True)
    packed = pretrainer.evaluate(pairs, batch_size=2, verbose=0, return_dict=True)
    for name, value in expected.items():
        assert_allclose(packed[name], value, rtol=1e-5, err_msg=name)
    shapes = [pretrainer.predict(rows, verbose=0)["pair_logits"].shape for rows in (single, pairs)]
    assert shapes == [(3, 2), (2, 2, 2)]
    assert_allclose(
        pretrainer.compute_loss(x=pairs, y_pred=pretrainer(pairs)),
        pretrainer.compute_loss(x=single, y_pred=pretrainer(single)),
        rtol=1e-5,
    )
