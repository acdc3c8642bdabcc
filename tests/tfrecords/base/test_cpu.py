import importlib
import os
import subprocess
import sys

import pytest

import serving
from tfrecords.base.machine import cpu
from tfrecords.base.machine.cpu import cores, has_only_avx2, limit_libraries, train_by_onednn

SWITCH = "TF_ENABLE_ONEDNN_OPTS"


@pytest.mark.parametrize(
    "flags, only_avx2", [("fpu avx", False), ("fpu avx2", True), ("fpu avx2 avx512f", False), ("", False)]
)
def test_training_multiplies_by_onednn_where_tensorflow_would_not(flags, only_avx2, tmp_path, monkeypatch):
    # Put back after the test.
    monkeypatch.setenv(SWITCH, "")
    monkeypatch.delenv(SWITCH)
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(f"model name : a CPU\nflags\t\t: {flags}\nbugs\t: none\nflags : of another core\n")
    assert has_only_avx2(cpu_info) == only_avx2
    train_by_onednn(cpu_info)
    assert os.environ.get(SWITCH) == ("1" if only_avx2 else None)
    # What the user set stays.
    monkeypatch.setenv(SWITCH, "0")
    train_by_onednn(cpu_info)
    assert os.environ[SWITCH] == "0"


@pytest.mark.parametrize("command", ["albert_tf.run_pretraining", "albert_tf.run_finetuning", "albert_tf.compress"])
def test_commands_that_train_set_the_switch_before_anything_else(command, monkeypatch):
    done, module = [], importlib.import_module(command)
    for name in ("train_by_onednn", "run_main"):
        monkeypatch.setattr(module, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(sys, "argv", ["command"])
    module.run()
    assert done == ["train_by_onednn", "run_main"]


@pytest.mark.parametrize(
    "groups, limits, expected",
    [
        ("", {}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "399999 100000", "cpu.max": "max 1"}, 3),
        ("0::/a", {"a/cpu.max": "50000 100000"}, 1),
        ("4:cpuacct,cpu:/a\n0::/", {"cpuacct,cpu/a/cpu.cfs_quota_us": "-1", "cpuacct,cpu/a/cpu.cfs_period_us": "9"}, 8),
        ("4:cpuacct,cpu:/docker/1", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("5:memory:/a", {"memory/a/cpu.max": "100000 100000"}, 8),
    ],
)
def test_cores_are_those_of_the_affinity_and_of_every_cgroup(groups, limits, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    # The server and nproc are scripts here; the server prints its flags.
    scripts = {"nproc": "#!/bin/sh\necho 8", "tensorflow_model_server": '#!/bin/sh\necho "$@"'}
    files = scripts | {"proc/self/cgroup": groups} | {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o755)
    assert cores(tmp_path) == expected
    # The script that starts tensorflow_model_server in images has the same rule.
    environment = {"ALBERT_TF_ROOT": tmp_path, "MODELS": tmp_path, "LINKS": tmp_path / "links", "MODEL_NAME": "proc"}
    environment |= {"PATH": f"{tmp_path}:{os.defpath}", "LINK_SECONDS": "0.1"}
    command = ["sh", f"{serving.__path__[0]}/deploy/link_versions.sh", "tensorflow_model_server", "--port=1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    flags = [f"--tensorflow_{kind}_op_parallelism={expected}" for kind in ("intra", "inter")]
    assert done.stdout.split() == [*flags, "--port=1"], done.stderr


def test_cores_where_there_is_no_affinity(tmp_path, monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert cores(tmp_path) == 6


@pytest.mark.parametrize("quota, set_before, expected", [(2, None, "2"), (2, "3", "3"), (8, None, None)])
def test_libraries_start_as_many_threads_as_a_quota_has_cores(quota, set_before, expected, monkeypatch):
    monkeypatch.setattr(cpu, "_affinity", lambda: 8)
    monkeypatch.setattr(cpu, "cores", lambda: quota)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OPENBLAS_NUM_THREADS")
    for name in names:
        monkeypatch.setenv(name, set_before or "")
        if set_before is None:
            monkeypatch.delenv(name)
    limit_libraries()
    assert [os.environ.get(name) for name in names] == [expected] * 3
    assert cpu.limited_cores() == ("2 of 8 cores (the container's limit)" if quota < 8 else "")
