"""serving/deploy/link_versions.sh: a server starts on the versions that its CPU can run, and on no others."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.inference import InferenceEncoder, InferenceOptions, onednn
from serving.manifest import MANIFEST
from serving.model_server import flags
from tests.serving.model_server.conftest import wait_until
from tfrecords.base import files

SCRIPT = Path(flags.__file__).parents[1] / "deploy" / "link_versions.sh"
COMPUTES = ("float32", "bfloat16", "int8")
AVX512 = "avx512f avx512bw avx512vl avx512dq"
CPUS = {
    "old": "flags\t\t: fpu sse2\n",
    "avx2": "flags\t\t: fpu avx2 avx512fp16\n",
    "avx512": f"flags\t\t: fpu {AVX512} avx512cd\n",
    "avx512 without one": "flags\t\t: avx512f avx512bw avx512vl\n",
    "avx512, other blanks": f"flags: {AVX512}\nbugs\t\t: spectre\n",
    "arm": "processor\t: 0\nFeatures\t: fp asimd bf16\n",
}


def write_manifest(version, compute):
    described = InferenceEncoder.describe(SimpleNamespace(options=InferenceOptions(compute)))
    (version / MANIFEST).parent.mkdir(parents=True)
    files.write_json(version / MANIFEST, {"task": {"labels": ['"requires": "a CPU with"', "é"]}, "compute": described})


@pytest.fixture
def models(tmp_path):
    """A folder with a version for each CPU, others' versions, and what is none."""
    for number, compute in enumerate(COMPUTES, 1):
        write_manifest(tmp_path / "models" / "m" / str(number), compute)
    (tmp_path / "models" / "m" / "00000005").mkdir()
    (tmp_path / "models" / "m" / "6.tmp").mkdir()
    return tmp_path / "models"


def settings(tmp_path, text=CPUS["old"], **changes):
    """The environment of a machine whose /proc/cpuinfo says `text`."""
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    folders = {"MODELS": str(tmp_path / "models"), "LINKS": str(tmp_path / "links"), "MODEL_NAME": "m"}
    return os.environ | folders | {"ALBERT_TF_CPUINFO": str(tmp_path / "cpuinfo"), "LINK_SECONDS": "0.1"} | changes


def link(environment, *command):
    command = command or ("true",)
    return subprocess.run(["sh", SCRIPT, *command], env=environment, capture_output=True, text=True, timeout=30)


def linked(tmp_path, name="m"):
    return sorted(path.name for path in (tmp_path / "links" / name).iterdir())


@pytest.mark.parametrize("machine", CPUS)
def test_those_versions_are_linked_that_this_cpu_can_run(models, tmp_path, machine):
    done = link(settings(tmp_path, CPUS[machine], MODELS=os.path.relpath(models)))
    assert done.returncode == 0, done.stderr
    runs = [onednn.can_run(compute, tmp_path / "cpuinfo") for compute in COMPUTES]
    numbers = [str(number) for number, compute_runs in enumerate(runs, 1) if compute_runs]
    assert linked(tmp_path) == ["00000005", *numbers]
    assert (tmp_path / "links" / "m" / "1").resolve() == models / "m" / "1"
    refused = [f"version {number} needs a CPU with {AVX512.replace(' ', ', ')}"
               for number, compute_runs in enumerate(runs, 1) if not compute_runs]  # fmt: skip
    assert done.stderr == (f"not served on this CPU: m: {'; '.join(refused)}\n" if refused else "")


@pytest.mark.parametrize("text", [None, ""])
def test_where_nothing_is_known_of_the_cpu_all_are_linked(models, tmp_path, text):
    assert link(settings(tmp_path, text)).stderr == ""
    assert linked(tmp_path) == ["00000005", "1", "2", "3"]


def test_without_a_version_that_can_run_one_line_says_so_and_nothing_starts(models, tmp_path):
    for number in (1, 3, "00000005"):
        shutil.rmtree(models / "m" / str(number))
    done = link(settings(tmp_path), "echo", "started")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(
        f"no version of m in {models} can run on this CPU: version 2 needs a CPU with avx512f,"
    )
    assert done.stderr.endswith("; export one with --compute=float32 or int8\n")


def test_links_of_an_earlier_start_that_lead_to_another_folder_are_replaced(models, tmp_path):
    write_manifest(tmp_path / "others" / "m" / "1", "float32")
    for folder in (models, tmp_path / "others"):
        assert link(settings(tmp_path, MODELS=str(folder))).returncode == 0
    assert linked(tmp_path) == ["1"]
    assert (tmp_path / "links" / "m" / "1").resolve() == tmp_path / "others" / "m" / "1"


def test_several_models_and_one_that_is_not_there_yet(models, tmp_path):
    write_manifest(models / "n" / "7", "bfloat16")
    environment = settings(tmp_path, CPUS["avx512"], MODEL_NAME="m n later")
    done = link(environment, "sh", "-c", 'echo "$MODEL_BASE_PATH" "$@"', "sh", "--port=1", "a b")
    assert (done.stdout, done.returncode) == (f"{tmp_path / 'links'} --port=1 a b\n", 0)
    assert (linked(tmp_path, "n"), linked(tmp_path, "later")) == (["7"], [])


@pytest.mark.parametrize("changes", [{"MODEL_NAME": ""}, {"LINKS": "/proc/links"}])
def test_what_cannot_be_done_ends_with_a_line(models, tmp_path, changes):
    done = link(settings(tmp_path, **changes), "echo", "started")
    assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") == 1


def test_versions_come_and_go_while_the_server_runs(models, tmp_path):
    command = ["sh", SCRIPT, "sleep", "3600"]
    server = subprocess.Popen(command, env=settings(tmp_path), stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: (tmp_path / "links" / "m").exists() and linked(tmp_path) == ["00000005", "1", "3"])
        for number, compute in ((7, "float32"), (8, "bfloat16")):
            write_manifest(tmp_path / "new", compute)
            (tmp_path / "new").rename(models / "m" / str(number))
        shutil.rmtree(models / "m" / "1")
        wait_until(lambda: linked(tmp_path) == ["00000005", "3", "7"])
        assert "version 2" in server.stderr.readline() and "version 8" in server.stderr.readline()
        # A share that is away for a moment.
        (models / "m").rename(models / "away")
        with pytest.raises(AssertionError):
            wait_until(lambda: len(linked(tmp_path)) != 3, seconds=0.5)
    finally:
        server.kill()
        server.communicate()
