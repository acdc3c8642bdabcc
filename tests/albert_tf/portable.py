"""What test_jax.py compares between two Keras backends; `python portable.py OUTPUT.npz [slow]` computes it by JAX."""

import sys
from pathlib import Path

import keras
import numpy as np
from keras import ops
from numpy.testing import assert_allclose

import albert_tf
from tests.albert_tf.depth_cases import CONFIGS, EQUILIBRIA, FEATURES, TEXTS, encoder_of, filled, inputs, small, trained
from tfrecords.base.errors import UserError

GOLD = Path(__file__).parent / "gold" / "official" / "tiny_groups2"
LABELS = np.array([0, 1, 1])
# Of every configuration with code of its own for JAX the largest; a compilation costs 2 to 4 s.
COMPILED = {
    "everything": "loop",
    "random depth": "unrolled",
    "modern block, packed": "recompute",
    "implicit": "equilibrium",
}
LOOPS = ("unrolled", "loop", "recompute")
OTHERS = {
    name: LOOPS[place % 3] for place, name in enumerate(CONFIGS | EQUILIBRIA) if name not in COMPILED
} | {"random depth": "loop"}  # fmt: skip


def encoder(name: str, walk: str) -> dict:
    return trained(encoder_of(name, walk), inputs(name))


def official() -> dict:
    """A published checkpoint: its metrics and weights after two steps by `train_on_batch`."""
    from albert_tf.checkpoints import load_official

    features = dict(np.load(GOLD / "inputs.npz"))
    config = albert_tf.AlbertConfig.from_json(GOLD / "albert_config.json")
    model = albert_tf.AlbertPretrainer(albert_tf.AlbertEncoder(config, walk="loop"))
    load_official(GOLD, model)
    model.compile(keras.optimizers.SGD(0.05))
    metrics = [model.train_on_batch(features, return_dict=True) for _ in range(2)]
    return metrics[-1] | {str(i): weight for i, weight in enumerate(model.get_weights())}


def learned_exits() -> dict:
    """Weights and losses of two steps, whose difference is the gradient, and who leaves when."""
    config = small(vocab_size=50)
    model = filled(albert_tf.AlbertClassifier(albert_tf.AlbertEncoder(config), 2, 0.0, albert_tf.LearnedExit(0.2, 0.7)))
    model.compile(keras.optimizers.SGD(0.1))
    results = {f"loss {step}": model.train_on_batch(TEXTS, LABELS)[0] for step in range(2)}
    results |= {str(i): weight for i, weight in enumerate(model.get_weights())}
    results["p"] = model.exit_probabilities(TEXTS)
    for rule, threshold in {"confidence": 0.7, "patience": 1, "learned": 0.5, "movement": 0.7}.items():
        answers = model.answer_early(TEXTS, threshold, rule)
        results |= {f"{rule} {name}": value for name, value in answers.items()}
    return results


def _own_loss(model, features, outputs):
    return model.compute_loss(features, None, outputs)


PARTS = {name: lambda name=name, walk=walk: encoder(name, walk) for name, walk in COMPILED.items()}
SLOW_PARTS = {"official": official, "learned exits": learned_exits} | {
    f"{name}, {walk}": lambda name=name, walk=walk: encoder(name, walk) for name, walk in OTHERS.items()
}


def functional_models_answer_as_calls_do() -> None:
    model = albert_tf.AlbertSpanPredictor(small(num_hidden_layers=1), joint=True)
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in TEXTS}
    outputs = keras.Model(inputs, model(inputs)).predict_on_batch(TEXTS)
    spans = outputs["spans"]
    assert (spans["start_index"] <= spans["end_index"])[spans["score"] > -1e29].all()
    paths, expected = zip(*keras.tree.flatten_with_path(model.predict_on_batch(TEXTS)))
    assert paths == tuple(path for path, _ in keras.tree.flatten_with_path(outputs))
    for found, value in zip(keras.tree.flatten(outputs), expected):
        assert_allclose(found, value, atol=1e-5)


def numbers_out_of_range_are_nan_or_an_error() -> None:
    """XLA raises no errors: an answer and a loss of NaN are what it can say."""
    model = albert_tf.AlbertPretrainer(small(num_hidden_layers=1))
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


def dropout_trains_in_a_loop() -> None:
    config = small(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = albert_tf.AlbertPretrainer(albert_tf.AlbertEncoder(config, walk="loop", seed=1))
    model.compile(keras.optimizers.Adam(1e-2))
    losses = model.fit(FEATURES, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0], losses


def fits_show_what_walks_measure() -> None:
    """Keras computes metrics in another trace than the forward pass under JAX; what is measured comes from one."""
    halting = CONFIGS["act"] | {"gate_init": 0.5}
    solved = EQUILIBRIA["implicit"] | {"equilibrium_tolerance": 1e-3}
    for config, figure in ((halting, "halting_steps"), (solved, "equilibrium_steps")):
        walk = "loop" if config is halting else "unrolled"
        model = albert_tf.AlbertClassifier(albert_tf.AlbertEncoder(small(**config), walk=walk), 2)
        model.compile(keras.optimizers.SGD(0.01))
        history = model.fit(TEXTS, LABELS, 3, validation_data=(TEXTS, LABELS), verbose=0).history
        assert history[figure][0] >= 1 and history[f"val_{figure}"][0] >= 1, history


def updates_use_one_kernel_for_attention() -> None:
    """By a run's own loop, which learns the same with and without it; on a CPU Keras computes it by several."""
    from albert_tf.optimizers import create_optimizer
    from albert_tf.training.devices import Devices
    from albert_tf.training.jax_steps import JaxSteps

    calls, original = [], ops.dot_product_attention
    keras.ops.dot_product_attention = lambda *args, **kwargs: calls.append(1) or original(*args, **kwargs)
    found, batch = {}, ({name: ops.convert_to_tensor(value) for name, value in TEXTS.items()}, LABELS)
    for fuses in (False, True):
        model = filled(albert_tf.AlbertClassifier(small(num_hidden_layers=2), 2, dropout=0.0))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=create_optimizer("adamw", 0.001, 100, 1), loss=loss)
        model.optimizer.build(model.trainable_variables)
        steps, found[fuses] = JaxSteps(model, Devices(), fuses=fuses), []
        for _ in range(8):
            steps.train(batch)
            found[fuses].append(float(steps.results()["loss"]))
        # One for each step of depth, when the update is traced.
        assert len(calls) == 2 * fuses, calls
    assert_allclose(found[True], found[False], atol=1e-4)
    assert found[True][-1] < found[True][0] - 0.05, found


CHECKS = (functional_models_answer_as_calls_do, numbers_out_of_range_are_nan_or_an_error)
SLOW_CHECKS = (dropout_trains_in_a_loop, fits_show_what_walks_measure, updates_use_one_kernel_for_attention)


def main(path: str, slow: bool) -> None:
    assert keras.backend.backend() == "jax"
    assert "tensorflow" not in sys.modules, "albert_tf imports TensorFlow under another backend"
    # Files of models compiled with them load where nothing but the package was imported.
    assert {"albert_tf>Lamb", "albert_tf>AdamWeightDecay"} <= keras.saving.get_custom_objects().keys()
    rng = np.random.default_rng(0)
    # JAX compiles the random numbers of every shape; weights are set afterwards, or need not be its own.
    keras.initializers.TruncatedNormal.__call__ = lambda self, shape, dtype=None: rng.normal(scale=0.02, size=shape)
    results = {}
    for part, compute in (SLOW_PARTS if slow else PARTS).items():
        results |= {f"{part}::{name}": np.asarray(value) for name, value in compute().items()}
    for check in SLOW_CHECKS if slow else CHECKS:
        check()
    np.savez(path, **results)


if __name__ == "__main__":
    main(sys.argv[1], "slow" in sys.argv[2:])
