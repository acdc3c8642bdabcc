"""XLNet in transformers' form and in its own code's: both ways, and parity with PyTorch where it is installed."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file

from albert_tf import AlbertEncoder, AlbertSpanPredictor, XlnetPretrainer, load
from albert_tf.checkpoints import load_huggingface, load_official, save_huggingface, save_official
from albert_tf.checkpoints.official import read_tensors, write_tensors
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf.test_round_trips import XLNET
from tests.albert_tf.tiny import small
from tests.refusals import refused

TOLERANCE = dict(atol=1e-5, rtol=0)
CONFIG = small(**XLNET, num_attention_heads=4)


def test_both_forms_have_xlnets_shapes_and_tied_biases_are_every_layers(tmp_path):
    model = AlbertEncoder(CONFIG, pooler=False)
    prefix = save_official(model, tmp_path)
    tensors = read_tensors(prefix)
    shapes = {"r_w_bias": (2, 4, 4), "seg_embed": (2, 2, 4, 4), "layer_1/rel_attn/o/kernel": (16, 4, 4)}
    for name, shape in (shapes | {"mask_emb/mask_emb": (1, 1, 16)}).items():
        assert tensors[f"model/transformer/{name}"].shape == shape
    values = json.loads((tmp_path / "xlnet_config.json").read_text())
    assert " ".join(sorted(values)) == "d_head d_inner d_model ff_activation n_head n_layer n_token untie_r"
    for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
        tensors[f"model/transformer/{name}"] = tensors[f"model/transformer/{name}"][0]
    write_tensors(prefix, tensors)
    weights = named_variables(load_official(tmp_path))
    for i in range(2):
        assert_array_equal(weights[f"attention_{i}/content_bias"], tensors["model/transformer/r_w_bias"])
    save_huggingface(model, tmp_path)
    tensors, values = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    assert tensors["layer.0.rel_attn.o"].shape == (16, 4, 4)
    assert values["clamp_len"] == 5 and values["model_type"] == "xlnet"


def test_a_tied_head_may_be_in_the_file_and_another_may_not(tmp_path):
    save_huggingface(XlnetPretrainer(CONFIG), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    copy = {"lm_loss.weight": tensors["transformer.word_embedding.weight"]}
    save_file(tensors | copy, tmp_path / "model.safetensors")
    assert isinstance(load_huggingface(tmp_path), XlnetPretrainer)
    save_file(tensors | {name: value + 1 for name, value in copy.items()}, tmp_path / "model.safetensors")
    with refused(r"not part of this model: lm_loss\.weight"):
        load_huggingface(tmp_path)


def test_the_first_token_that_sentence_transformers_pools_is_no_cls(tmp_path):
    save_huggingface(AlbertEncoder(CONFIG, pooler=False), tmp_path)
    (tmp_path / "pooling").mkdir()
    (tmp_path / "pooling" / "config.json").write_text('{"pooling_mode": ["mean", "cls"]}')
    modules = [{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with refused("pooling 'cls' is the first token there"):
        load(tmp_path)


BATCH, LENGTH, TARGETS = 3, 7, 2
NO_MASK = {"p_mask": np.zeros((BATCH, LENGTH), "int32")}
GOLD = Path(__file__).parent / "gold" / "xlnet"
# What a configuration has otherwise, and whether rows have targets, an order and a memory. Run as a script, this file
# makes the gold (with torch 2.13.0 and transformers 5.23.0).
CASES = {
    "streams": ({}, True, True, True),
    "one_direction": ({"attn_type": "uni", "clamp_len": 4}, True, False, True),
    "reused_part": ({"reuse_len": 3}, False, False, True),
}


def make(folder, name, **options):
    """Writes a random tiny model of transformers; returns it."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(len(name))
    values = dict(vocab_size=30, d_model=16, n_layer=3, n_head=4, d_inner=24, mem_len=5, dropout=0.1)
    model = getattr(transformers, name)(transformers.XLNetConfig(**(values | options))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return model


def batch(seed, mapped, permuted, remembered, rows=BATCH):
    """The same batch in transformers' words and in ours."""
    import torch

    rng = np.random.default_rng(seed)
    features = {
        "input_ids": rng.integers(0, 30, (rows, LENGTH)),
        "token_type_ids": rng.integers(0, 4, (rows, LENGTH)),
        "attention_mask": np.ones((rows, LENGTH), "int64"),
    }
    features["attention_mask"][0, :3] = 0
    if permuted:
        features["perm_mask"] = (rng.random((rows, LENGTH, LENGTH)) < 0.4).astype("float32")
    if mapped:
        places = np.array([rng.permutation(LENGTH)[:TARGETS] for _ in range(rows)])
        features["target_mapping"] = np.eye(LENGTH, dtype="float32")[places]
        features["target_mapping"][-1, 1] = 0
    theirs = {name: torch.tensor(value) for name, value in features.items()}
    theirs["attention_mask"] = theirs["attention_mask"].float()
    if remembered:
        features["memory"] = rng.normal(size=(3, rows, 5, 16)).astype("float32")
        theirs["mems"] = [torch.tensor(layer.transpose(1, 0, 2)) for layer in features["memory"]]
    return theirs, features


def made(folder, options, mapped, permuted, remembered):
    """Writes a model; returns a batch with labels, and what transformers answers."""
    import torch

    theirs = make(folder, "XLNetLMHeadModel", **options)
    # Theirs takes masks of one row alone where attention is one-directional.
    rows = 1 if "attn_type" in options else BATCH
    inputs, features = batch(3, mapped, permuted, remembered, rows)
    labels = np.random.default_rng(5).integers(0, 30, (rows, TARGETS if mapped else LENGTH))
    with torch.no_grad():
        found = theirs(**inputs, labels=torch.tensor(labels), use_mems=True, output_hidden_states=True)
    # With targets transformers lists content and queries in turns.
    gold = {"hidden_states": np.stack(found.hidden_states[:: 2 if mapped else 1])}
    gold |= {"memory": np.stack([layer.numpy().transpose(1, 0, 2) for layer in found.mems])}
    gold |= {"query_output": found.hidden_states[-1].numpy()} if mapped else {}
    return features | {"labels": labels}, gold | {"logits": found.logits.numpy(), "loss": found.loss.numpy()}


def check(folder, features, gold):
    model, labels = load_huggingface(folder), features.pop("labels")
    assert isinstance(model, XlnetPretrainer)
    outputs, predictions = model.encoder(features), model(features)
    for name in gold.keys() - {"logits", "loss"}:
        assert_allclose(np.stack(outputs[name]), gold[name], **TOLERANCE, err_msg=name)
    scale = max(1.0, float(np.abs(gold["logits"]).max()))
    assert_allclose(predictions["masked_lm_logits"], gold["logits"], atol=1e-5 * scale, rtol=0)
    x = features | {"masked_lm_ids": labels, "masked_lm_weights": np.ones(labels.shape, "float32")}
    assert float(model.compute_loss(x, None, predictions)) == pytest.approx(float(gold["loss"]), abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_streams_memory_and_loss_are_those_of_transformers(case):
    check(GOLD / case, *(dict(np.load(GOLD / case / f"{name}.npz")) for name in ("inputs", "outputs")))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"attn_type": "uni", "clamp_len": 4}, {"reuse_len": 3}])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("permuted", [True, False])
@pytest.mark.parametrize("remembered", [True, False])
def test_streams_memory_and_loss_against_transformers(tmp_path, options, mapped, permuted, remembered):
    check(tmp_path, *made(tmp_path, options, mapped, permuted, remembered))


@pytest.mark.slow
def test_the_joint_span_head_against_transformers(tmp_path):
    """Answerability and starts: the ends of its beam are those of our search."""
    import torch

    theirs = make(tmp_path, "XLNetForQuestionAnswering", mem_len=None)
    model = load_huggingface(tmp_path)
    assert isinstance(model, AlbertSpanPredictor) and model.joint
    inputs, features = batch(4, mapped=False, permuted=False, remembered=False)
    inputs["attention_mask"][:], features["attention_mask"][:] = 1, 1
    with torch.no_grad():
        expected = theirs(**inputs)
    answers = model(features | NO_MASK)
    starts = np.sort(np.exp(answers["start_log_probs"]), axis=1)[:, ::-1]
    top = expected.start_top_log_probs
    assert_allclose(starts[:, : top.shape[1]], top, **TOLERANCE)
    assert_allclose(answers["answerable_logits"], expected.cls_logits, **TOLERANCE)


if __name__ == "__main__":
    for case, settings in CASES.items():
        features, gold = made(GOLD / case, *settings)
        np.savez_compressed(GOLD / case / "inputs.npz", **features)
        np.savez_compressed(GOLD / case / "outputs.npz", **gold)
