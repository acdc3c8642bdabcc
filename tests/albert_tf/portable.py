"""What test_jax.py computes under two Keras backends: `python portable.py OUTPUT.npz [whole]`, checks imports too."""

import sys
from pathlib import Path

import keras
import numpy as np

import albert_tf
from tfrecords.base.errors import UserError

GOLD = Path(__file__).parent / "gold" / "official" / "tiny_groups2"


def compute(whole: bool) -> dict[str, np.ndarray]:
    """The official gold and all extensions over depth in a loop; as a whole every walk, and the modern block on packed
    rows: see `trained`."""
    from albert_tf.checkpoints import load_official

    features = dict(np.load(GOLD / "inputs.npz"))
    results = {}
    for walk in ("unrolled", "loop") if whole else ("loop",):
        config = albert_tf.AlbertConfig.from_json(GOLD / "albert_config.json")
        model = albert_tf.AlbertPretrainer(albert_tf.AlbertEncoder(config, walk=walk))
        load_official(GOLD, model)
        results |= trained(model, features, walk)
    if not whole:
        return results | depth({"loop": DEPTH})
    modern = dict(norm_position="pre", norm="rms_norm", feed_forward="glu", position_type="rotary", use_bias=False)
    model = albert_tf.AlbertPretrainer(albert_tf.AlbertEncoder(config.replace(**modern), walk="loop"))
    rng = np.random.default_rng(1)
    model.set_weights([(w.name in ("gamma", "scale")) + rng.normal(scale=0.2, size=w.shape) for w in model.weights])
    sequences = np.cumsum(np.ones_like(features["input_ids"]), axis=1) // 5
    results |= trained(model, features | {"sequence_ids": sequences.astype("int32")}, "modern")
    return results | depth(MODELS)


def trained(model: keras.Model, features: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The outputs of a model, and every weight after two steps of training."""
    model.compile(keras.optimizers.SGD(0.05))
    # Compiled whole: operation by operation it would be some hundred programs under JAX.
    outputs = model.predict_on_batch(features)
    metrics = [model.train_on_batch(features, return_dict=True) for _ in range(2)]
    results = {f"{name}/{output}": value for output, value in outputs.items()}
    results |= {f"{name}/{metric}": np.asarray(value) for metric, value in metrics[-1].items()}
    return results | {f"{name}/{i}": np.asarray(weight) for i, weight in enumerate(model.get_weights())}


# Every extension over depth at once, its gates open.
DEPTH = dict(
    vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=16, step_signal="sinusoid", hyper_connections=3, depth_lora_rank=2, depth_plan="1+1x2",
    gate_init=0.5, halting="act", attention_window=3, global_attention_every=2,
)  # fmt: skip
# Three steps are not enough for a pattern of two to repeat.
_ALONE = ("step_signal", "hyper_connections", "depth_lora_rank", "depth_plan", "halting", "global_attention_every")
SOLVED = {name: value for name, value in DEPTH.items() if name not in _ALONE}
# A number of steps, since rows that stop by a tolerance may do so a step apart.
SOLVED |= dict(equilibrium_tolerance=0.0, equilibrium_max_steps=4)
MODELS = {
    "unrolled": DEPTH,
    "loop": DEPTH,
    "phantom": SOLVED | dict(equilibrium_solver="fixed_point", equilibrium_phantom_steps=2),
    "implicit": SOLVED | dict(equilibrium_solver="anderson", equilibrium_gradient="implicit"),
}


def depth(models: dict[str, dict]) -> dict[str, np.ndarray]:
    """Outputs of extensions over depth through all walks, and every weight after two steps of training."""
    rng = np.random.default_rng(3)
    features = {"input_ids": rng.integers(5, 40, (3, 9)), "input_mask": np.arange(9) < np.array([[9], [7], [4]])}
    features = {name: value.astype("int32") for name, value in features.items()}
    results = {}
    for walk, config in models.items():
        encoder = albert_tf.AlbertEncoder(albert_tf.AlbertConfig(**config), walk if walk == "loop" else "unrolled")
        model = albert_tf.AlbertClassifier(encoder, 2, 0.0)
        rng = np.random.default_rng(7)
        model.set_weights([("gamma" in w.path) + rng.normal(scale=0.2, size=w.shape) for w in model.weights])
        model.compile(keras.optimizers.SGD(0.05))
        results[f"depth/{walk}/logits"] = model.predict_on_batch(features)
        for _ in range(2):
            model.train_on_batch(features, np.array([0, 1, 1]))
        results |= {f"depth/{walk}/{i}": np.asarray(weight) for i, weight in enumerate(model.get_weights())}
    return results


def dropout_trains_in_a_loop() -> None:
    features = dict(np.load(GOLD / "inputs.npz"))
    config = albert_tf.AlbertConfig.from_json(GOLD / "albert_config.json")
    config = config.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = albert_tf.AlbertPretrainer(albert_tf.AlbertEncoder(config, walk="loop", seed=1))
    model.compile(keras.optimizers.Adam(1e-2))
    losses = model.fit(features, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0], losses


def fits_show_what_walks_measure() -> None:
    """Keras computes metrics in another trace than the forward pass under JAX; what is measured comes from one."""
    rng = np.random.default_rng(3)
    features = {"input_ids": rng.integers(5, 40, (4, 9)).astype("int32")}
    solved = SOLVED | {"equilibrium_solver": "anderson", "equilibrium_tolerance": 1e-3}
    halting = {name: value for name, value in DEPTH.items() if name not in ("hyper_connections", "depth_lora_rank")}
    for config, walk, figure in ((halting, "loop", "halting_steps"), (solved, "equilibrium", "equilibrium_steps")):
        model = albert_tf.AlbertClassifier(albert_tf.AlbertEncoder(albert_tf.AlbertConfig(**config), walk=walk), 2)
        model.compile(keras.optimizers.SGD(0.01))
        labels = np.array([0, 1, 1, 0])
        history = model.fit(features, labels, 2, validation_data=(features, labels), verbose=0).history
        assert history[figure][0] >= 1 and history[f"val_{figure}"][0] >= 1, history


def spans_search() -> None:
    features = dict(np.load(GOLD / "inputs.npz"))
    config = albert_tf.AlbertConfig.from_json(GOLD / "albert_config.json")
    model = albert_tf.AlbertSpanPredictor(albert_tf.AlbertEncoder(config), joint=True)
    spans = model.predict_on_batch(features)["spans"]
    assert (spans["start_index"] <= spans["end_index"])[spans["score"] > -1e29].all()


def functional_models_answer_as_calls_do() -> None:
    features = dict(np.load(GOLD / "inputs.npz"))
    features = {name: features[name].astype("int32") for name in ("input_ids", "input_mask")}
    config = albert_tf.AlbertConfig.from_json(GOLD / "albert_config.json")
    for make in (albert_tf.AlbertEncoder, albert_tf.AlbertSpanPredictor):
        model, inputs = make(config), {name: keras.Input((None,), dtype="int32", name=name) for name in features}
        outputs = keras.Model(inputs, model(inputs)).predict_on_batch(features)
        paths, expected = zip(*keras.tree.flatten_with_path(model.predict_on_batch(features)))
        assert paths == tuple(path for path, _ in keras.tree.flatten_with_path(outputs))
        for found, value in zip(keras.tree.flatten(outputs), expected):
            np.testing.assert_allclose(found, value, atol=1e-5)


def numbers_out_of_range_are_nan_or_an_error() -> None:
    """XLA raises no errors: an answer and a loss of NaN are what it can say."""
    config = albert_tf.AlbertConfig(**DEPTH | {"halting": "none"})
    model = albert_tf.AlbertPretrainer(config)
    ids, words = np.array([[5, 6, 7]]), {"masked_lm_weights": np.ones((1, 1)), "next_sentence_labels": np.array([[0]])}
    good = {"input_ids": ids, "masked_lm_positions": np.array([[1]]), "masked_lm_ids": np.array([[7]])} | words
    calls = keras.Model.predict_on_batch
    for name, value in (("input_ids", -1), ("input_ids", 40), ("masked_lm_positions", -1), ("masked_lm_positions", 3)):
        bad = good | {name: np.where(np.arange(good[name].shape[1]) == 0, value, good[name])}
        assert np.isnan(calls(model, bad)["masked_lm_logits"]).any(), (name, value)
        try:
            model.predict_on_batch(bad)
        except UserError as error:
            assert str(error).startswith(f"{name}: {value} at [0, 0]"), error
        else:
            raise AssertionError(f"{name} {value} was read")
    outputs = calls(model, good)
    for name, value in (("masked_lm_ids", -1), ("masked_lm_ids", 40), ("next_sentence_labels", 2)):
        loss = model.compute_loss(good | {name: np.array([[value]])}, None, outputs)
        assert np.isnan(loss), (name, value)


if __name__ == "__main__":
    assert "tensorflow" not in sys.modules, "albert_tf imports TensorFlow under another backend"
    # Files of models compiled with them load where nothing but the package was imported.
    assert {"albert_tf>Lamb", "albert_tf>AdamWeightDecay"} <= keras.saving.get_custom_objects().keys()
    whole = "whole" in sys.argv[2:]
    np.savez(sys.argv[1], **compute(whole))
    spans_search()
    functional_models_answer_as_calls_do()
    numbers_out_of_range_are_nan_or_an_error()
    if whole:
        dropout_trains_in_a_loop()
        fits_show_what_walks_measure()
    print("backend:", keras.backend.backend())
