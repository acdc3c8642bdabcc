"""A LiteRT file answers as its Keras model, holds every weight once, and our server serves it."""

import numpy as np
import pytest

from albert_tf.checkpoints.formats import save_keras
from serving.check import TOLERANCES, Tolerance, compare, expected_answers
from serving.litert import LiteRtSettings, write
from serving.litert_file import convert, run_file
from serving.model_server.litert import TfLiteModel
from tests.serving.inference.encoders import GATED, MODERN
from tfrecords.base import files
from tfrecords.base.errors import UserError

INPUTS = {
    "input_ids": np.random.default_rng(1).integers(5, 40, (3, 12), np.int32),
    "lengths": np.array([12, 5, 1], np.int32),
}
NEAR = Tolerance(angle=1e-6, difference=1e-5)


@pytest.fixture
def answer(tmp_path):
    def answer(content: bytes, inputs: dict) -> dict[str, np.ndarray]:
        (tmp_path / "model.tflite").write_bytes(content)
        return run_file(tmp_path / "model.tflite", inputs)

    return answer


HEADS = ["classifier", "regressor", "embedder", "cls embedder", "encoder", "pretrainer"]


@pytest.mark.parametrize(
    ("head", "length", "changes"),
    [
        ("classifier", 12, {"num_hidden_groups": 2}),
        ("embedder", None, {"sharing": "none", "hidden_act": "gelu_erf", "num_hidden_layers": 2}),
        ("pretrainer", None, MODERN | GATED),
        *(pytest.param(head, length, {}, marks=pytest.mark.slow) for head in HEADS for length in (12, None)),
        pytest.param("classifier", None, {"position_type": "rotary"}, marks=pytest.mark.slow),
    ],
)
def test_answers_equal_the_keras_model(make_model, answer, head, length, changes):
    model = make_model(head, **{"num_hidden_layers": 4} | changes)
    compare(expected_answers(model, INPUTS), answer(convert(model, length=length), INPUTS), NEAR)


def test_one_file_takes_rows_of_any_length_and_padding_does_not_matter(make_model, answer):
    model = make_model("regressor")
    content = convert(model)
    padded = answer(content, INPUTS)
    compare(expected_answers(model, INPUTS), padded, NEAR)
    for row, length in enumerate(INPUTS["lengths"]):
        alone = {"input_ids": INPUTS["input_ids"][row : row + 1, :length], "lengths": INPUTS["lengths"][row : row + 1]}
        for name, values in answer(content, alone).items():
            np.testing.assert_allclose(values[0], padded[name][row], atol=1e-5)
    with pytest.raises(RuntimeError, match="gather"):
        answer(content, {"input_ids": np.ones((1, 49), np.int32), "lengths": np.array([49], np.int32)})


@pytest.mark.parametrize(
    ("compute", "bytes_per_weight"), [pytest.param("float32", 4, marks=pytest.mark.slow), ("int8", 1)]
)
def test_the_file_does_not_grow_with_depth(make_model, compute, bytes_per_weight):
    wide = {"hidden_size": 128, "intermediate_size": 512}
    models = [make_model("classifier", num_hidden_layers=layers, **wide) for layers in (3, 5)]
    shallow, deep = (len(convert(model, compute)) for model in models)
    assert abs(deep - shallow) < 100
    assert deep < bytes_per_weight * models[1].count_params() + 80_000


@pytest.fixture
def folder(tmp_path):
    def folder(model, task: dict | None = None):
        (tmp_path / "model").mkdir()
        save_keras(model, tmp_path / "model/model.keras")
        if task:
            files.write_json(tmp_path / "model/task.json", task)
        return str(tmp_path / "model")

    return folder


def test_command_writes_a_file_that_our_server_serves(make_model, folder, run_module, tmp_path):
    # TensorFlow leaves kernels of less than 1024 numbers in float32.
    model = make_model("classifier", hidden_size=64, intermediate_size=128)
    path = folder(model, {"inputs": ["first", "second"], "labels": ["a", "b", "c"]})
    made = run_module("serving.litert", f"--model={path}", f"--output={tmp_path}/1/model.tflite", "--compute=int8")
    assert made.returncode == 0, made.stderr
    assert "check: logits differs by at most" in made.stdout and "Warning" not in made.stderr
    served = TfLiteModel(str(tmp_path / "1"), interpreters=1)
    signature = served.signatures["serving_default"]
    inputs = {name: values[:1] for name, values in INPUTS.items()}
    inputs["segment_ids"] = inputs["input_ids"] % 2
    # Without metadata the server's names are those of the file's tensors.
    feeds = {signature.inputs[f"serving_default_{name}"].name: values for name, values in inputs.items()}
    (logits,) = served.run(feeds, [info.name for info in signature.outputs.values()])
    expected = expected_answers(model, inputs)
    assert compare(expected, {"logits": logits}, TOLERANCES["int8"])["logits"] > 1e-5


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        ("spans", {}, "a AlbertSpanPredictor cannot be written for LiteRT; these can: AlbertClassifier, "),
        ("classifier", {"output": "."}, "--output=. is a folder; name a file, such as model.tflite"),
        ("classifier", {"compute": "bfloat16"}, "--compute=bfloat16 is unknown; choose one of float32, int8"),
        ("classifier", {"max_seq_length": 49}, "--max_seq_length=49 must be from 1 to the 48 tokens"),
    ],
)
def test_refusals_leave_no_file(make_model, folder, tmp_path, head, changes, message):
    settings = {"model": folder(make_model(head)), "output": str(tmp_path / "out/model.tflite")} | changes
    with pytest.raises(UserError, match=message):
        write(LiteRtSettings(**settings))
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"halting": "act"}, "halting 'act'"),
        ({"attention_window": 2}, "attention_window 2"),
        ({"position_type": "relative"}, "position_type 'relative'"),
        ({"equilibrium_solver": "anderson"}, "equilibrium_solver 'anderson'"),
    ],
)
def test_what_it_has_no_place_for_is_refused_by_name(make_model, changes, what):
    with pytest.raises(UserError, match=f"^{what} is not written for LiteRT; export it with serving.export$"):
        convert(make_model("encoder", **changes))
