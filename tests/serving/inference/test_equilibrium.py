"""Exports that run their blocks to a fixed point: answers, residual and steps by row."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder
from serving.export import ExportSettings, export
from serving.inference import InferenceOptions, make_encoder
from tfrecords.base.errors import UserError

CONFIG = AlbertConfig(
    vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=16, depth_plan="1+1x4+1", equilibrium_solver="anderson", equilibrium_tolerance=1e-4,
    equilibrium_max_steps=60, gate_init=1.0,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(5, 40, (3, 9)).astype("int32")
LENGTHS = np.array([9, 3, 6], "int32")
MASK = (np.arange(9) < LENGTHS[:, None]).astype("int32")


@pytest.fixture(scope="module", params=["anderson", "fixed_point", "4 steps"])
def encoder(request):
    keras.utils.set_random_seed(0)
    changes = {"equilibrium_solver": request.param}
    if request.param == "4 steps":
        changes = {"equilibrium_solver": "fixed_point", "equilibrium_tolerance": 0.0, "equilibrium_max_steps": 4}
    encoder = AlbertEncoder(CONFIG.replace(**changes))
    for variable in encoder.weights:
        variable.assign(variable * 3 if len(variable.shape) > 1 else variable + 0.05)
    return encoder


def answers(encoder, **options):
    twin = make_encoder(encoder, InferenceOptions(**options))
    outputs = tf.function(twin, autograph=False)(IDS, LENGTHS)
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize("padding", ["skipped", "computed"])
@pytest.mark.few(2)
def test_the_twin_gives_what_the_model_gives(encoder, padding):
    expected, found = encoder({"input_ids": IDS, "input_mask": MASK}), answers(encoder, padding=padding)
    for name in ("sequence_output", "pooled_output"):
        mask = MASK[:, :, None] if name == "sequence_output" else 1
        np.testing.assert_allclose(found[name] * mask, np.asarray(expected[name]) * mask, atol=2e-3)
    np.testing.assert_allclose(found["residual"], expected["residual"], rtol=0.5, atol=2e-5)
    assert np.abs(found["steps"] - np.asarray(expected["steps"])).max() <= 2


@pytest.mark.parametrize("compute", ["bfloat16", "int8"])
@pytest.mark.few(2)
def test_fewer_bits_stay_near(encoder, compute):
    try:
        found = answers(encoder, compute=compute)
    except UserError as error:
        pytest.skip(str(error))
    expected = encoder({"input_ids": IDS, "input_mask": MASK})["pooled_output"]
    assert np.abs(found["pooled_output"] - expected).max() < 0.2
    assert np.isfinite(found["residual"]).all() and (found["steps"] >= 1).all()


@pytest.mark.slow
def test_an_export_says_residual_and_steps_of_each_row(tmp_path):
    model = AlbertClassifier(AlbertEncoder(CONFIG), 2)
    model.save(tmp_path / "model.keras")
    version = export(ExportSettings(f"{tmp_path}/model.keras", f"{tmp_path}/servable", warm_up_lengths="", check=True))
    served = tf.saved_model.load(version).signatures
    outputs = served["serving_default"](input_ids=tf.constant(IDS), lengths=tf.constant(LENGTHS))
    assert outputs["steps"].shape == outputs["residual"].shape == (3,)
    assert (outputs["residual"].numpy() < 1e-4).all() and (outputs["steps"].numpy() > 1).all()
    assert set(served["classify"].structured_outputs) == {"scores", "classes"} if "classify" in served else True


def test_what_stops_by_itself_has_no_early_exit():
    with pytest.raises(UserError, match="stops by itself"):
        AlbertClassifier(AlbertEncoder(CONFIG), 2, early_exit=True)
