"""The share of a machine that training uses is of FLOPs counted and of a rate measured."""

import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertEncoder
from albert_tf.analysis.cost import flops
from albert_tf.models.text_student import TextStudent
from albert_tf.training import utilisation
from albert_tf.training.utilisation import Utilisation, matrix_rate
from tests.albert_tf.tiny import small

CONFIG = small(num_hidden_layers=4)
SETTINGS = types.SimpleNamespace(dtype_policy="float32")


@pytest.fixture(autouse=True)
def rate(monkeypatch):
    monkeypatch.setattr(utilisation, "matrix_rate", lambda dtype: {"float32": 2e9, "bfloat16": 8e9}[dtype])


def test_rows_of_several_lengths_count_three_forward_passes_each():
    used = Utilisation(CONFIG, SETTINGS, replicas=2)
    work = used.work(10, 32) + used.work(6, 16)
    assert work == 3 * (10 * flops(CONFIG, 32).total + 6 * flops(CONFIG, 16).total)
    assert used.figures(work, 0.5) == {"mfu": work / 0.5 / 4e9}
    assert Utilisation(CONFIG, types.SimpleNamespace(dtype_policy="mixed_bfloat16")).figures(8e9, 1.0) == {"mfu": 1.0}


def test_a_device_without_units_for_bfloat16_is_measured_by_float32(monkeypatch):
    monkeypatch.setattr(utilisation, "matrix_rate", lambda dtype: {"float32": 4e9, "bfloat16": 1e9}[dtype])
    used = Utilisation(CONFIG, types.SimpleNamespace(dtype_policy="mixed_bfloat16"))
    assert used.figures(2e9, 1.0) == {"mfu": 0.5}


def test_the_best_of_all_measurements_counts_and_no_share_is_above_one(monkeypatch, caplog):
    rates = iter([1e9, 4e9, 2e9, 2e9])
    monkeypatch.setattr(utilisation, "matrix_rate", lambda dtype: next(rates))
    used = Utilisation(CONFIG, SETTINGS)
    used.measure_again()  # The first is fresh.
    assert used.figures(0.5e9, 1.0) == {"mfu": 0.5}
    # Above the first, busy one: measured again.
    assert used.share(2e9, 1.0) is None
    assert used.figures(2e9, 1.0) == {"mfu": 0.5} and used.share(2e9, 1.0) == 0.5
    with caplog.at_level("WARNING"):
        assert used.figures(8e9, 1.0) == {"mfu": 1.0}
        assert used.figures(16e9, 1.0) == {"mfu": 1.0}
    assert caplog.text.count("more than the 4 of a large product of matrices") == 1
    assert used.figures(8e9, 1.0) == {"mfu": 0.5}


@pytest.mark.parametrize("changes", [{"equilibrium_solver": "fixed_point"}, {"random_depth_min": 2}])
def test_what_makes_as_many_steps_as_its_rows_ask_has_none(changes):
    used = Utilisation(CONFIG.replace(**changes), SETTINGS)
    assert not used.figures(used.work(10, 32), 1.0)


def test_a_product_of_matrices_is_measured():
    assert 1e8 < matrix_rate("float32") < 1e15


def products_in(graph: tf.Graph) -> int:
    """The floating-point operations of the matrix products in a graph and its functions."""
    total = 0
    for op in graph.get_operations():
        if op.type.startswith(("MatMul", "BatchMatMul")):
            is_turned = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            total += 2 * int(np.prod(op.outputs[0].shape)) * op.inputs[0].shape[-2 if is_turned else -1]
    return total + sum(products_in(function.graph) for function in graph._functions.values())


@pytest.mark.parametrize("kind", ["a student whose teacher was asked before", "packed rows"])
def test_the_work_counted_is_what_a_steps_graph_does(kind):
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}
    config = CONFIG.replace(**sizes, depth_plan="1x2", depth_lora_rank=4)
    rows, length = 8, 32
    encoder = AlbertEncoder(config, pooler=False)
    student = TextStudent(encoder, {"vectors": 1.0, "states": 1.0})
    features = dict.fromkeys(["input_ids", "input_mask"], tf.TensorSpec((rows, length), tf.int32))
    packed = kind == "packed rows"
    if packed:
        features["sequence_ids"] = features["input_ids"]
    else:
        features["taught_vectors"] = tf.TensorSpec((rows, 64))
        features["taught_states"] = tf.TensorSpec((rows, 3, 64, length), tf.float16)

    @tf.function(autograph=False)
    def gradients(x):
        with tf.GradientTape() as tape:
            if packed:
                loss = tf.reduce_mean(encoder(x, training=True)["sequence_output"] ** 2)
            else:
                loss = student.compute_loss(x=x, y_pred=student(x, training=True))
        return tape.gradient(loss, encoder.trainable_variables if packed else student.trainable_variables)

    counted = Utilisation(config, SETTINGS).work(rows, length)
    assert counted == pytest.approx(products_in(gradients.get_concrete_function(features).graph), rel=0.01)
