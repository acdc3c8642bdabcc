"""A servable for another CPU is refused by whatever loads it, and where nothing is known of the CPU it is taken."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from serving import cpu
from serving.client import Client
from serving.exportable import CLASSIFY, ExportOptions, make_exportable
from serving.inference import InferenceOptions
from serving.model_server.servable import SavedModel
from tests.serving.inference.encoders import needs_avx512
from tests.serving.model_server.conftest import start, wait_for

INFO = "processor\t: 0\nmodel name\t: some avx512_bf16 CPU\nflags\t\t: fpu {} sse2\nbugs\t\t: avx_vnni\n\n"
SENTENCE = (
    "this servable was exported for CPUs with avx512_bf16, avx512f or avx_vnni, which this machine has not; "
    "export it with --compute=float32 or int8"
)


@pytest.fixture(scope="module")
def cpu_info(tmp_path_factory):
    return tmp_path_factory.mktemp("proc") / "cpuinfo"


@pytest.fixture(scope="module")
def version(export_model, cpu_info):
    """A float32 classifier that says it needs more, of the CPU that `cpu_info` describes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cpu.NEEDS, "float32", (("avx512_bf16", "avx512f"), ("avx_vnni",)))
        patch.setattr("serving.cpu.CPU_INFO", str(cpu_info))
        return export_model("classifier", warm_up_lengths="8")


def load(version):
    return tf.saved_model.load(version).signatures


def load_in_session(version):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(version))


def load_in_our_server(version):
    SavedModel(str(version)).close()


LOADERS = [load, load_in_session, load_in_our_server]


def each_loader(name, first, *others):
    """Every loader with the first of the values; of the others it is the graph that decides, so one loader will do."""
    cases = [(loader, first) for loader in LOADERS] + [(load_in_session, other) for other in others]
    return pytest.mark.parametrize(("loader", name), cases)


@each_loader("flags", "avx2", "avx512_bf16 avx512fp16", "avx512f avx512_bf160 avx_vnni_int8")
@pytest.mark.few(2)
def test_another_cpu_is_refused_with_a_sentence(version, cpu_info, loader, flags):
    cpu_info.write_text(INFO.format(flags))
    with pytest.raises(tf.errors.InvalidArgumentError) as refused:
        loader(version)
    assert SENTENCE in str(refused.value)


@each_loader("flags", "avx512f avx512_bf16", "avx_vnni")
def test_a_cpu_that_has_one_of_the_sets_is_served(version, cpu_info, loader, flags):
    cpu_info.write_text(INFO.format(flags))
    loader(version)


@each_loader("text", None, "")
@pytest.mark.few(2)
def test_without_a_readable_cpuinfo_nothing_is_checked(version, cpu_info, loader, text):
    cpu_info.unlink(missing_ok=True)
    if text is not None:
        cpu_info.write_text(text)
    loader(version)


def test_a_server_refuses_the_version_and_goes_on_with_the_others(version, exported, cpu_info, tmp_path):
    cpu_info.write_text(INFO.format("avx2"))
    shutil.copytree(exported("ids"), tmp_path / "1")
    server = start(model_base_path=str(tmp_path), file_system_poll_wait_seconds=1)
    try:
        shutil.copytree(version, tmp_path / "coming")
        (tmp_path / "coming").rename(tmp_path / "2")
        with Client(server.address, "default") as client:
            states = lambda: {one.version: one for one in client.status()}  # noqa: E731
            assert wait_for(lambda: 2 in states() and states()[2].state == "END", 60), states()
            assert wait_for(lambda: 1 in states() and states()[1].state == "AVAILABLE", 60), states()
            assert SENTENCE in states()[2].error
            assert client.predict_ids([[2, 8, 3]])["label"].shape == (1,)
    finally:
        server.stop()


def test_a_machine_that_is_no_x86_is_refused(version, cpu_info):
    cpu_info.write_text("processor\t: 0\nFeatures\t: fp asimd bf16\n")
    with pytest.raises(tf.errors.InvalidArgumentError, match="exported for CPUs with"):
        load(version)


def test_a_refusing_servable_answers_as_others_do(version, cpu_info, make_model):
    cpu_info.write_text(INFO.format("avx_vnni"))
    ids, lengths = tf.constant([[2, 8, 9, 3]]), tf.constant([4])
    found = load(version)["serving_default"](input_ids=ids, lengths=lengths)["logits"]
    expected = make_model("classifier")({"input_ids": ids})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    model = SavedModel(str(version))
    assert model.signatures["classify"].method_name == CLASSIFY
    model.close()


@pytest.mark.parametrize("compute", ["float32", "int8", pytest.param("bfloat16", marks=needs_avx512)])
def test_only_what_needs_more_asks(make_model, compute):
    servable = make_exportable(make_model("encoder"), ExportOptions(48, inference=InferenceOptions(compute)))
    assert (servable.cpu_check is not None) == (compute == "bfloat16")
