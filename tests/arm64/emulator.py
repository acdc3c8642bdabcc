"""An ARM64 Python under qemu's user-mode emulation, from Debian's and PyPI's packages, in a folder and without root."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys

import pytest

PACKAGES = ("absl-py", "ai-edge-litert", "numpy", "protobuf", "sentencepiece", "tokenizers")
_TAGS = [f"manylinux{version}_aarch64" for version in ("2014", "_2_17", "_2_26", "_2_27", "_2_28")]
# Libraries look for the CPU's features here; the emulator shows a file of its system before the machine's own.
_PROCESSOR = """processor\t: {}
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""


def emulated_python(folder):
    """Returns the command of a Python for ARM64 that has PACKAGES; skips the test where it cannot be made."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip(f"emulates ARM64 on x86-64 under Linux, and this is {sys.platform} on {platform.machine()}")
    if missing := [name for name in ("apt-get", "dpkg-deb", "dpkg") if not shutil.which(name)]:
        pytest.skip(f"Debian's packages need {missing[0]}")
    system, tools = folder / "system", folder / "tools"
    _unpack("arm64", ["python3", "libstdc++6"], system)
    _unpack("amd64", ["qemu-user-static"], tools)
    emulators = [path for path in (tools / "usr" / "bin").glob("qemu-aarch64*") if "_be" not in path.name]
    pythons = sorted((system / "usr" / "bin").glob("python3.[0-9]*[0-9]"))
    if not emulators or not pythons:
        pytest.skip("this system's packages have no static emulator, or no Python for ARM64")
    (system / "proc").mkdir(exist_ok=True)
    (system / "proc" / "cpuinfo").write_text("".join(_PROCESSOR.format(number) for number in range(2)))
    pins = [f"{name}=={importlib.metadata.version(name)}" for name in PACKAGES]
    platforms = [f"--platform={tag}" for tag in _TAGS]
    version = pythons[0].name.removeprefix("python")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    _run([*pip, *platforms, f"--python-version={version}", f"--target={folder / 'packages'}", *pins])
    # With SME (as in "max"), qemu 7.2 computes wrong integers.
    return [str(emulators[0]), "-cpu", "neoverse-n1", "-L", str(system), str(pythons[0])]


def _unpack(architecture, packages, target):
    """Unpacks Debian's packages with all that they need; the machine's own system stays as it is."""
    apt = target.with_suffix(".apt")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    options = {
        "Dir::State": apt / "state", "Dir::State::status": apt / "status", "Dir::Cache": apt / "cache",
        "APT::Architecture": architecture, "APT::Architectures": architecture, "APT::Install-Recommends": 0,
        "APT::Sandbox::User": os.environ.get("USER", "root"), "pkgCacheGen::Essential": "none",
        "Acquire::Retries": 2
    }  # fmt: skip
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*command, "update"])
    _run([*command, "install", "--download-only", "--yes", *packages])
    target.mkdir()
    for package in (apt / "cache" / "archives").glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(target)])


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    if done.returncode:
        pytest.skip(f"{' '.join(command[:1])}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
