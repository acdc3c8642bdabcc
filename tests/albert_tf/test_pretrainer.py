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
