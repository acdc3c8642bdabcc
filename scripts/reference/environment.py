"""Pages of environment variables and of the versions that work together."""

import re
import tomllib
from pathlib import Path

from scripts.imports import ROOMS, ROOT
from scripts.reference import sources
from scripts.reference.markdown import code, table

# What reads it, and what it does.
VARIABLES = {
    "KERAS_BACKEND": ("training", "`tensorflow` (the default) or `jax`. Export and serving always use TensorFlow."),
    "TF_CONFIG": ("training", "The cluster of `--strategy=multi_worker`, as TensorFlow and `jax.distributed` read it."),
    "TF_ENABLE_ONEDNN_OPTS": (
        "training, servers",
        "`1` lets TensorFlow use oneDNN for float32 products on CPUs without AVX-512. Training commands set it on such "
        "a CPU if it is not set. [What a server gains](../results/engines.md#cpus-with-avx2-alone).",
    ),
    "TF_NUM_INTRAOP_THREADS": ("all", "Threads inside an operation; `1` for each of several runs side by side."),
    "TF_CPP_MIN_LOG_LEVEL": ("all", "TensorFlow's messages; this library sets `3` unless it is set. `0` shows all."),
    "TMPDIR": (
        "fine-tuning",
        "Where rows of training files are stored while a run lasts; `/var/tmp` if it is not set.",
    ),
    "NUMBA_CACHE_DIR": ("tfrecords", "Where compiled kernels are stored."),
    "XDG_CACHE_HOME": ("tfrecords", "The user's cache folder, where kernels are stored if the package is read-only."),
    "RAY_ADDRESS": ("`--runner=ray`", "The cluster that gets the tasks; without it Ray starts here."),
    "HF_ENDPOINT": (
        "models by name",
        "The address of the hub, such as that of a mirror; read by `huggingface_hub` too.",
    ),
    "HF_HUB_OFFLINE": ("models by name", "`1`: nothing is downloaded, models come from the cache."),
    "HF_HUB_CACHE": ("models by name", "Where downloaded models are stored."),
    "HF_TOKEN": ("models by name", "The token that gated models ask for."),
    "CUDA_VISIBLE_DEVICES": ("all", "Which GPUs TensorFlow and JAX see."),
    "TF_FORCE_GPU_ALLOW_GROWTH": ("all", "`true`: GPU memory is taken as needed, not at once."),
    "ALBERT_TF_PYTHON": (
        "scripts",
        "The Python that `scripts/quickstart.sh` and `scripts/test.sh` make their environment from.",
    ),
    "ALBERT_TF_CPUINFO": ("tests", "A file to read in place of `/proc/cpuinfo`."),
}
# Read by the code, and of no use to set by hand.
_INNER = {"PYTHONPATH", "TOKENIZERS_PARALLELISM"}
_PARTS = {
    "tensorflow": "all but the client and the gateway", "keras": "models and training",
    "tensorflow-text": "exports of text", "keras-hub": "checkpoints of keras-hub",
    "tensorflow-serving-api": "the embedded model server", "grpcio": "servers and clients",
    "protobuf": "servers and clients", "numpy": "all", "tokenizers": "tokenizers", "sentencepiece": "tokenizers",
    "numba": "building examples",
}  # fmt: skip

_FORMATS = {
    "MODEL_FORMAT": "albert_tf/base/model.py", "TOKENIZER_FORMAT": "tfrecords/tokenizers/base.py",
    "RECORDS_FORMAT": "tfrecords/manifest.py", "EXPORT_FORMAT": "serving/manifest.py",
}  # fmt: skip


def pages() -> dict[str, str]:
    """Returns the pages by their paths below docs/reference."""
    rows = [[code(name), who, text] for name, (who, text) in VARIABLES.items()]
    head = "# Environment variables\n\nFlags decide everything else.\n\n"
    return {
        "environment.md": head + table(("variable", "read by", ""), rows),
        "compatibility.md": _compatibility(),
    }


def unknown_variables() -> set[str]:
    """Returns the variables that the packages read and the page does not list."""
    found = set()
    for path, source in sources.all_sources().files.items():
        if path.split("/")[0] in ROOMS:
            text = (ROOT / source.path).read_text("utf-8")
            found |= set(re.findall(r"""environ(?:\.get\(|\.setdefault\(|\[)["'](\w+)["']""", text))
    return found - set(VARIABLES) - _INNER


def _compatibility() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE))
    rows = []
    for requirement in project["project"]["dependencies"]:
        name, versions = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        rows.append([name, versions.replace(",", ", "), pinned.get(name, ""), _PARTS.get(name, "")])
    extras = sorted(project["tool"]["setuptools"]["dynamic"]["optional-dependencies"])
    lines = [table(("package", "range", "tested", "for"), rows), f"Extras: {', '.join(map(code, extras))}."]
    template = Path(__file__).with_name("compatibility.md").read_text("utf-8")
    for name, path in _FORMATS.items():
        number = re.search(r"^\w+_(?:VERSION|FORMAT) = (\d+)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        template = template.replace(name, number[1])
    return template.replace("PACKAGES", "\n\n".join(lines)).replace("PYTHON", project["project"]["requires-python"])
