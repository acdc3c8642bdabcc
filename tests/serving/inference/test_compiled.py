"""The engine "xla": its numbers, its graphs compiled at load, and its refusal by a server that has XLA off."""

import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from serving.export import save
from serving.exportable import ExportOptions, make_exportable
from serving.inference import InferenceOptions, compiled, make_encoder
from tests.serving.inference.encoders import make_keras
from tfrecords.base.errors import UserError

OPTIONS = InferenceOptions(engine="xla", compiled_lengths=(5, 8))
PRE = {"norm_position": "pre", "norm": "rms_norm", "feed_forward": "glu", "use_bias": False, "initializer_range": 0.15}
SENTENCE = (
    "this servable was exported with --engine=xla; start tensorflow_model_server with "
    "--xla_cpu_compilation_enabled=true"
)


# More than 5 s: XLA compiles two lengths, and TensorFlow builds the usual graph beside them.
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="albert"),
        pytest.param(PRE, id="pre", marks=pytest.mark.slow),
        pytest.param({"sharing": "none", "hidden_act": "gelu_erf"}, id="bert", marks=pytest.mark.slow),
    ],
)
def test_short_rows_have_the_usual_numbers(changes):
    keras_encoder = make_keras(**changes)
    encoders = make_encoder(keras_encoder), make_encoder(keras_encoder, OPTIONS)
    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    functions = [
        tf.function(
            lambda ids, lengths, one=one: one(ids, lengths) | {"alone": one.pooled(ids, lengths)},
            input_signature=specs,
            autograph=False,
        )
        for one in encoders
    ]
    ids = np.random.default_rng(0).integers(0, 60, (2, 12)).astype("int32")
    # Shorter than a length, with padding, as long as one, too long, and two rows.
    for rows, length, real in ((1, 3, [3]), (1, 12, [4]), (1, 8, [8]), (1, 12, [12]), (2, 6, [6, 2])):
        expected, found = (function(ids[:rows, :length], np.array(real, "int32")) for function in functions)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5, err_msg=f"{name} {rows}x{length}")


def test_an_id_beyond_the_vocabulary_fails():
    encode = tf.function(make_encoder(make_keras(), OPTIONS), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        encode(np.array([[2, 60]], "int32"), np.array([2], "int32"))


@pytest.mark.parametrize(
    "options, message",
    [({"compute": "int8"}, "float32"), ({"padding": "computed"}, "skipped"), ({"engine": "lua"}, "is none of")],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        InferenceOptions(**{"engine": "xla"} | options)


def test_extensions_are_refused_by_name():
    with pytest.raises(UserError, match=r"engine xla does not run .*rotary"):
        make_encoder(make_keras(position_type="rotary"), OPTIONS)


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """An export that believes to be loaded by the program in the file beside it."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_COMMAND_LINE", str(folder / "cmdline"))
        save(make_exportable(make_keras(), ExportOptions(12, inference=OPTIONS)), folder / "1")
    return folder / "1"


@pytest.mark.parametrize("flag", ["", "--xla_cpu_compilation_enabled=false\0"])
def test_a_server_without_the_flag_refuses_at_load(version, flag):
    (version.parent / "cmdline").write_text(f"/usr/bin/tensorflow_model_server\0--port=1\0{flag}")
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(SENTENCE)):
        tf.saved_model.load(version)


@pytest.mark.parametrize(
    "command", ["tensorflow_model_server\0--xla_cpu_compilation_enabled=true\0--port=1\0", "python\0"]
)
def test_loading_compiles_each_length_once(version, command, capfd):
    (version.parent / "cmdline").write_text(command)
    loaded = tf.saved_model.load(version)
    assert "XLA compiled 2 graphs" in capfd.readouterr().err
    ids = np.array([[2, 5, 7]], "int32")
    answers = loaded.signatures["serving_default"](input_ids=tf.constant(ids), lengths=tf.constant([3]))
    expected = tf.function(make_encoder(make_keras()), autograph=False)(ids, np.array([3], "int32"))["pooled_output"]
    assert any(value.shape == expected.shape and np.allclose(value, expected, atol=1e-5) for value in answers.values())


SCRIPT = """
import sys
from serving.model_server.servable import SavedModel, disable_xla
disable_xla()
SavedModel(sys.argv[1])
"""


@pytest.mark.slow
def test_any_loader_without_xla_refuses_at_load(version):
    (version.parent / "cmdline").write_text("another_server\0")
    # In a process of its own: the switch cannot be turned back.
    refused = subprocess.run([sys.executable, "-c", SCRIPT, version], capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert "XLA compilation disabled" in refused.stderr
    assert "start_the_server_with_xla_cpu_compilation_enabled" in refused.stderr
