"""A loaded version as requests see it: which outputs the graph is asked for."""

import itertools
import logging

import numpy as np
from tensorflow.core.protobuf import meta_graph_pb2

from serving.model_server.servable import Servable, _quiet_deprecations


def test_two_loads_at_once_leave_the_log_as_it_was(caplog):
    caplog.set_level(logging.WARNING, logger="tensorflow")  # Commands that ran in this process have made it quieter.
    first, second = _quiet_deprecations(), _quiet_deprecations()
    first.__enter__()
    second.__enter__()
    logger = logging.getLogger("tensorflow")
    logger.warning("deprecated")
    first.__exit__(None, None, None)
    logger.error("wrong")
    second.__exit__(None, None, None)
    logger.warning("of use")
    assert caplog.messages == ["wrong", "of use"]


class Recorder:
    """Answers every output with its own name; remembers what it was asked for."""

    def __init__(self):
        self.fetched = []

    def run(self, feeds, fetches, timeout=None):
        self.fetched.append(tuple(fetches))
        return [np.array(name) for name in fetches]

    def close(self):
        pass


def make_servable(outputs=10):
    signature = meta_graph_pb2.SignatureDef()
    signature.inputs["x"].name = "x:0"
    for index in range(outputs):
        signature.outputs[f"y{index}"].name = f"y{index}:0"
    other = meta_graph_pb2.SignatureDef()
    other.inputs["z"].name = "z:0"
    other.outputs["y0"].name = "y0:0"
    recorder = Recorder()
    return Servable("m", 1, {"other": other, "serving_default": signature}, recorder), recorder


def test_combinations_of_outputs_are_bounded():
    """Each one costs 150 KB of TensorFlow's for good; 1,500 output filters were 160 MB."""
    servable, recorder = make_servable()
    names = [f"y{index}:0" for index in range(10)]
    for fetches in itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(1, 10)):
        answer = servable.run("Predict", {"x:0": np.zeros(1)}, fetches)
        assert [value.item() for value in answer] == list(fetches)
    assert len(set(recorder.fetched)) <= 65
    assert recorder.fetched[-1] == tuple(names)
    servable.run("Predict", {"x:0": np.zeros(1)}, [names[3]])
    assert recorder.fetched[-1] == (names[3],), "what was asked for before is still run alone"


def test_order_and_repetition_make_no_new_combination():
    servable, recorder = make_servable()
    for fetches in (["y1:0", "y0:0", "y1:0"], ["y0:0", "y1:0"]):
        assert [value.item() for value in servable.run("Predict", {"x:0": np.zeros(1)}, fetches)] == fetches
    assert set(recorder.fetched) == {("y0:0", "y1:0")}
