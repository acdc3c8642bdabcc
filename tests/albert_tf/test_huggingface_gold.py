"""Parity with transformers (PyTorch) on its own checkpoints, at tokens that are no padding."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from albert_tf.checkpoints import load_huggingface, save_huggingface

GOLD = Path(__file__).parent / "gold" / "huggingface"


def check(folder):
    model = load_huggingface(folder)
    features, gold = dict(np.load(folder / "inputs.npz")), np.load(folder / "outputs.npz")
    tokens = features["input_mask"].astype(bool)
    encoded, logits = model.encoder(features), model(features)
    pairs = gold["sop_logits"] if "sop_logits" in gold else gold["nsp_logits"]
    for ours, theirs in [
        (np.asarray(encoded["sequence_output"])[tokens], gold["sequence_output"][tokens]),
        (encoded["pooled_output"], gold["pooled_output"]),
        (np.asarray(logits["masked_lm_logits"])[tokens], gold["mlm_logits"][tokens]),
        (logits["pair_logits"], pairs),
    ]:
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    if "hidden_states" in gold:
        ours = np.stack(encoded["hidden_states"])[:, tokens]
        np.testing.assert_allclose(ours, gold["hidden_states"][:, tokens], atol=1e-5, rtol=0)
    return model


@pytest.mark.parametrize("case", ["albert_groups2", "bert"])
def test_every_output_and_the_way_back(case, tmp_path):
    model = check(GOLD / case)
    save_huggingface(model, tmp_path)
    theirs, ours = load_file(GOLD / case / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert theirs.keys() == ours.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert load_huggingface(tmp_path).encoder.config == model.encoder.config


@pytest.mark.parametrize("case", ["albert_shared", "albert_groups2", "bert"])
def test_whole_reference(case, shared):
    check(shared / "gold" / "huggingface" / case)
