"""The engine "xla": its numbers, its graphs compiled at load, and its refusal by a server that has XLA off."""

import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import yaml

from albert_tf.models.exit_rules import ExitRule
from serving.exportable import ExportOptions, make_exportable
from serving.exporting import save
from serving.inference import InferenceOptions, compiled, make_encoder
from tests.serving.inference.encoders import CONFIG, encoders_mostly_slow, make_keras
from tfrecords.base.errors import UserError

OPTIONS = InferenceOptions(engine="xla", compiled_lengths=(5, 8))
BETWEEN = InferenceOptions(engine="xla", compiled_lengths=(4, 8), compiled_from=(1, 7))
SENTENCE = (
    "this servable was exported with --engine=xla; start tensorflow_model_server with "
    "--xla_cpu_compilation_enabled=true"
)


def outputs_of(encoder):
    """A function of ids and lengths, of any shape, to all outputs and those of an early exit at a threshold."""

    def outputs(ids, lengths):
        found = encoder(ids, lengths) | {"alone": encoder.pooled(ids, lengths)}
        if encoder.config.extensions:
            return found
        thresholds, rule = tf.fill(tf.shape(lengths), 0.4), ExitRule("states", "movement")
        exits = encoder.early_exit(ids, lengths, None, [], thresholds, rule)
        return found | {f"exit {name}": value for name, value in exits.items()}

    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    return tf.function(outputs, input_signature=specs, autograph=False) if encoder.options.engine == "xla" else outputs


# More than 5 s: XLA compiles two lengths, each with an early exit.
@encoders_mostly_slow("albert", "windows", "halting plan", "relative, extended")
def test_short_rows_have_the_usual_numbers_or_the_extension_is_refused_by_name(changes):
    keras_encoder = make_keras(**changes)
    refused = {"step_signal", "halting"} & changes.keys()
    if changes.get("position_type") == "relative":
        refused |= {"position_type"}
    if refused:
        with pytest.raises(UserError, match="engine xla does not run ") as error:
            make_encoder(keras_encoder, OPTIONS)
        assert all(name in str(error.value) for name in refused)
        return
    usual, compiled = (outputs_of(make_encoder(keras_encoder, one)) for one in (None, OPTIONS))
    ids = np.random.default_rng(0).integers(0, 60, (2, 12)).astype("int32")
    # Shorter than a length, with padding, as long as one, too long, and two rows.
    for rows, length, real in ((1, 3, [3]), (1, 12, [4]), (1, 8, [8]), (1, 12, [12]), (2, 6, [6, 2])):
        expected, found = (one(ids[:rows, :length], np.array(real, "int32")) for one in (usual, compiled))
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5, err_msg=f"{name} {rows}x{length}")


# Flags of the CPU, changes of the encoder, other choices; the first and the last length, and how many there are.
AUTO = yaml.safe_load("""
- [avx2, {}, {}, 8, 384, 25]
- [avx2 avx512f, {}, {}, 16, 256, 5]
- [avx2 avx512f amx_bf16, {}, {}, 8, 128, 16]
- [avx2, {}, {compiled_lengths: [5]}, 5, 5, 1]
- [asimd, {}, {}, 0, 0, 0]
- [avx2, {halting: act}, {}, 0, 0, 0]
- [avx2, {}, {compute: int8}, 0, 0, 0]
- [avx2, {}, {padding: computed}, 0, 0, 0]
""")


@pytest.mark.parametrize(("flags", "changes", "choices", "first", "last", "count"), AUTO)
def test_auto_takes_xla_where_it_is_faster_and_can_run(flags, changes, choices, first, last, count, monkeypatch):
    monkeypatch.setattr("serving.inference.options.cpu_flags", lambda: set(flags.split()))
    resolved = InferenceOptions(**{"engine": "auto"} | choices).resolved(CONFIG.replace(**changes))
    assert resolved.engine == ("xla" if count else "tensorflow") and len(resolved.compiled_lengths) == count
    assert not count or (resolved.compiled_lengths[0], resolved.compiled_lengths[-1]) == (first, last)


@pytest.mark.parametrize(
    ("options", "fitting"),
    [(OPTIONS, {1, 2, 3, 4, 5, 6, 7, 8}), (BETWEEN, {1, 2, 3, 4, 7, 8})],
)
def test_single_rows_fit_that_are_as_long_as_a_compiled_length_takes(options, fitting):
    steps = make_encoder(make_keras(num_hidden_layers=1), options).compiled
    lengths = range(1, 11)
    assert {n for n in lengths if steps.fits(tf.sequence_mask([n], 12))} == fitting
    assert not any(steps.fits(tf.sequence_mask([n, n], 12)) for n in lengths)


def test_an_id_beyond_the_vocabulary_fails():
    encode = tf.function(make_encoder(make_keras(), OPTIONS), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        encode(np.array([[2, 60]], "int32"), np.array([2], "int32"))


@pytest.fixture(scope="module")
def encoder():
    return make_keras(num_hidden_layers=1)


@pytest.fixture(scope="module")
def version(tmp_path_factory, encoder):
    """An export that believes to be loaded by the program in the file beside it."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_COMMAND_LINE", str(folder / "cmdline"))
        save(make_exportable(encoder, ExportOptions(12, inference=OPTIONS)), folder / "1")
    return folder / "1"


@pytest.mark.parametrize("flag", ["", "--xla_cpu_compilation_enabled=false\0"])
def test_a_server_without_the_flag_refuses_at_load(version, flag):
    (version.parent / "cmdline").write_text(f"/usr/bin/tensorflow_model_server\0--port=1\0{flag}")
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(SENTENCE)):
        tf.saved_model.load(version)


@pytest.mark.parametrize(
    "command", ["tensorflow_model_server\0--xla_cpu_compilation_enabled=true\0--port=1\0", "python\0"]
)
def test_loading_compiles_each_length_once(version, encoder, command, capfd):
    (version.parent / "cmdline").write_text(command)
    loaded = tf.saved_model.load(version)
    assert "XLA compiled 2 graphs" in capfd.readouterr().err
    ids = np.array([[2, 5, 7]], "int32")
    answers = loaded.signatures["serving_default"](input_ids=tf.constant(ids), lengths=tf.constant([3]))
    expected = tf.function(make_encoder(encoder), autograph=False)(ids, np.array([3], "int32"))["pooled_output"]
    assert any(value.shape == expected.shape and np.allclose(value, expected, atol=1e-5) for value in answers.values())


SCRIPT = """
import sys
from serving.model_server.saved_model import SavedModel, disable_xla
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
