"""Every command and snippet of the guides runs, in their order, on small models.

Guides that start a server are the slow group `served_docs`, the others `docs`.
"""

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.docs.example_files import write_place
from tests.docs.pages import GUIDES, ROOT, blocks
from tests.servers import free_port

# Programs that a test machine lacks, or that reach the network.
LEFT_OUT = ("pip", "docker", "kubectl", "hf", "ss")
# Blocks that need other machines, or an environment of their own.
ELSEWHERE = re.compile(r"models\.example|10\.0\.0\.1|-m venv")
# Code to be written into the library: test_pages.py compares it with what is there.
NOT_RUN = ("extensions.md",)
# What other guides make first.
TICKETS = """
python -m albert_tf.run_finetuning --data_file=examples/tickets.csv --init_from=minilm --output_dir=tickets
python -m serving.export --model=tickets --output_dir=models/tickets --inputs=text
"""
SERVED = """
python -m serving.model_server --port=8500 --rest_api_port=8501 --model_name=tickets \\
    --model_base_path=$PWD/models/tickets &
curl -s --retry 300 --retry-delay 1 --retry-connrefused http://127.0.0.1:8501/v1/models/tickets
"""
SST2 = "python -m albert_tf.run_finetuning --task=sst2 --data_dir=glue/SST-2 --init_from=minilm --output_dir=sst2\n"
FIRST = dict.fromkeys(("which_export.md", "serve.md", "production.md", "light.md"), TICKETS)
FIRST |= dict.fromkeys(("score.md", "client_and_benchmark.md"), TICKETS + SERVED)
FIRST |= {"models.md": "rm -rf minilm\n", "depth.md": "cp -r albert/albert-base-v2 run\n"}
VOCABULARY = "python -m tfrecords.train_tokenizer --input='corpus/*.txt' --output_prefix=vocab/spm --vocab_size=30000\n"
RECORDS = "python -m tfrecords.create_pretraining_data --input='corpus/*.txt' --output_dir=data --tokenizer=vocab.txt\n"
FIRST |= {"xlnet.md": VOCABULARY, "memory.md": RECORDS, "gpu.md": RECORDS}
FIRST |= dict.fromkeys(("question_answering.md", "compress.md"), SST2)


def script_of(guide, ports):
    """The guide as a shell script: its commands and snippets. A server ends where the next one starts."""
    shell = [FIRST.get(guide.name, "")]
    for number, block in enumerate(blocks(guide)):
        if ELSEWHERE.search(block.text) or ("tritonclient" in block.text and not find_spec("tritonclient")):
            continue
        if block.language == "bash":
            shell.append(block.text)
        elif block.language == "python":
            shell.append(f"python - <<'SNIPPET{number}'\n{block.text}SNIPPET{number}\n")
    text = "\n".join(shell)
    for port, other in ports.items():
        text = text.replace(port, str(other))
    # Where a guide leaves it out, the gateway would take its default, which may be in use here.
    text = re.sub(r"serving\.gateway (?!.*--port=)", f"serving.gateway --port={ports['8080']} ", text)
    text = re.sub(r"(?m)^((?:.*\\\n)*.*serving\.model_server(?:.*\\\n)*.*&)$", r"end_server; \1\nserver=$!", text)
    return f"""set -eo pipefail
end_server() {{ if [ -n "${{server:-}}" ]; then kill $server; wait $server || true; fi; }}
PS4='+ $SECONDS s: '; set -x
{text}"""


def group_of(guide):
    return "served_docs" if "model_server --" in FIRST.get(guide.name, "") + guide.read_text("utf-8") else "docs"


CASES = [pytest.param(g, marks=pytest.mark.slow(group_of(g)), id=g.stem) for g in GUIDES if g.name not in NOT_RUN]


@pytest.fixture(scope="module")
def place(made_once):
    return made_once("place_of_the_guides", write_place)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("guide", CASES)
def test_a_guide_runs_as_it_stands(guide, place, tmp_path):
    shutil.copytree(place, tmp_path, symlinks=True, dirs_exist_ok=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    small = f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/docs/small_python.py "$@"\n'
    for name in (*LEFT_OUT, "python"):
        (programs / name).write_text(small if name == "python" else "#!/bin/sh\n")
        (programs / name).chmod(stat.S_IRWXU)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
    }
    said = tmp_path / "said.txt"
    ports = {port: free_port() for port in ("8500", "8501", "8080", "8081")}
    # Into a file: a server that a guide leaves running would hold a pipe open.
    with said.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", script_of(guide, ports)], cwd=tmp_path, env=environment, start_new_session=True,
            stdout=output, stderr=subprocess.STDOUT
        )  # fmt: skip
        try:
            assert process.wait() == 0, said.read_text()[-3000:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
