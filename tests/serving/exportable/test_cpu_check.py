"""A servable for another CPU, or for other kernels, is refused by whatever loads it."""

import shutil

import pytest
import tensorflow as tf

from serving.exportable import CLASSIFY, ExportOptions, ExportSignature, make_exportable
from serving.exportable.inputs import specs
from serving.exporting import save
from serving.inference import InferenceOptions, onednn
from tests.serving.inference.encoders import needs_avx512

INFO = "processor\t: 0\nmodel name\t: some avx512_bf16 CPU\nflags\t\t: fpu {} sse2\nbugs\t\t: avx_vnni\n\n"
SENTENCE = (
    "this servable was exported for CPUs with avx512_bf16, avx512f, which this machine has not; "
    "export it with --compute=float32 or int8"
)


@pytest.fixture(scope="module")
def cpu_info(tmp_path_factory):
    return tmp_path_factory.mktemp("proc") / "cpuinfo"


class Tiny(tf.Module):
    """Asks for what bfloat16 needs; its signatures halve numbers."""

    def __init__(self, cpu_info, trial=lambda zero: tf.equal(zero, 0.0)):
        super().__init__()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("serving.inference.onednn.CPU_INFO", str(cpu_info))
            self.cpu_check = onednn.CpuCheck("bfloat16", trial)

    def signatures(self):
        halves = lambda x: {"y": x / 2}  # noqa: E731
        default = ExportSignature(halves, specs("x", dtype=tf.float32))
        return {"serving_default": default, "classify": default._replace(method=CLASSIFY)}


@pytest.fixture(scope="module")
def version(tmp_path_factory, cpu_info):
    """A version for another CPU than the one that `cpu_info` describes."""
    path = tmp_path_factory.mktemp("versions") / "1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn, "BFLOAT16_NEEDS", ("avx512_bf16", "avx512f"))
        save(Tiny(cpu_info), path)
    return path


def load(version):
    return tf.saved_model.load(version).signatures


def load_in_session(version):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(version))


LOADERS = [load, load_in_session]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    "info",
    [
        *map(INFO.format, ("avx2", "avx512_bf16 avx512fp16", "avx512f avx512_bf160")),
        "processor\t: 0\nFeatures\t: fp asimd bf16\n",
    ],
)
def test_another_cpu_is_refused_with_a_sentence(version, cpu_info, load, info):
    cpu_info.write_text(info)
    with pytest.raises(tf.errors.InvalidArgumentError, match=SENTENCE):
        load(version)


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("info", [INFO.format("avx512f avx512_bf16"), "", None])
def test_a_cpu_that_has_them_is_served_and_where_nothing_is_known_too(version, cpu_info, load, info):
    cpu_info.unlink(missing_ok=True)
    if info is not None:
        cpu_info.write_text(info)
    load(version)


@pytest.mark.parametrize("compute", ["float32", "int8", pytest.param("bfloat16", marks=needs_avx512)])
def test_only_what_needs_more_asks(make_model, compute):
    servable = make_exportable(make_model("encoder"), ExportOptions(48, inference=InferenceOptions(compute)))
    assert (servable.cpu_check is not None) == (compute != "float32")


@pytest.mark.parametrize(
    "name, other, message",
    [
        # As where TensorFlow knows an operation no more, has no kernel of it, or one that cannot do all.
        (b"_MklBatchMatMulV2", b"_MklBatchMatMulV9", "Op type not registered '_MklBatchMatMulV9'"),
        (b"MklNameChangeOp", b"MklNameOfOthers", "No OpKernel was registered to support Op '_MklBatchMatMulV2'"),
        (b"GeluApproximate", b"GeluAtItsLimits", "Fusion is not implemented: .BiasAdd,GeluAtItsLimits"),
    ],
)
def test_a_servable_whose_kernel_is_gone_does_not_load(exported, tmp_path, name, other, message):
    shutil.copytree(exported("int8"), tmp_path / "1")
    graph = tmp_path / "1" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes().replace(name, other))
    with pytest.raises((tf.errors.OpError, ValueError), match=message):
        load_in_session(tmp_path / "1")


def test_a_servable_whose_kernels_give_other_numbers_does_not_load(cpu_info, tmp_path):
    cpu_info.write_text("")
    save(Tiny(cpu_info, trial=lambda zero: zero > 0), tmp_path / "1")
    with pytest.raises(tf.errors.InvalidArgumentError, match="this TensorFlow computes bfloat16 otherwise than"):
        load_in_session(tmp_path / "1")
