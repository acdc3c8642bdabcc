"""The share of a machine that training uses is of FLOPs counted and of a rate measured."""

import types

import pytest

from albert_tf import AlbertConfig
from albert_tf.analysis.cost import flops
from albert_tf.training import utilisation
from albert_tf.training.utilisation import Utilisation, matrix_rate

CONFIG = AlbertConfig(
    vocab_size=30, embedding_size=8, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32
)
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


@pytest.mark.parametrize("changes", [{"equilibrium_solver": "fixed_point"}, {"random_depth_min": 2}])
def test_what_makes_as_many_steps_as_its_rows_ask_has_none(changes):
    used = Utilisation(CONFIG.replace(**changes), SETTINGS)
    assert not used.figures(used.work(10, 32), 1.0)


def test_a_product_of_matrices_is_measured():
    assert 1e8 < matrix_rate("float32") < 1e15
