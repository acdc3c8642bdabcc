"""What all tests share: reference data that a clone does not carry, a tiny pipeline, slow groups, times by package."""

import contextlib
import functools
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import hypothesis
import pytest

from tests.slow_groups import GROUPS, group_of
from tfrecords.base import files

ROOT = Path(__file__).parents[1]
# Examples are the same in every run. `HYPOTHESIS_PROFILE=thorough` draws others, and 20 times as many.
hypothesis.settings.register_profile("default", max_examples=50, deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
# Until all tests are collected: imports make many objects and little garbage, a third of their time goes to looking.
gc.disable()
# Set before any test imports Keras or TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Every core has a worker of its own; threads that share tiny products would cost 8 % of the time.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every command that a test sends it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Started first, so that no core waits at the end for one of them. The exports' server is not next to other tests of
# the same exports, of which one would wait for the other to write them.
LONGEST = (
    "test_exports", "test_steps", "test_pretraining_options", "test_resume", "test_depth_loops",
    "test_contract", "test_jax", "test_round_trips", "test_lanes", "test_finetuning", "test_numbers",
    "test_distillation", "test_stored", "test_house", "test_pages", "test_run", "test_export_files"
)  # fmt: skip


def pytest_configure(config):
    for group in GROUPS:
        config.addinivalue_line("markers", f"slow_{group}: the slow tests of the group {group} (tests/slow_groups.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    _mark_most_as_slow(items)
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(f"slow_{group_of(item)}")
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


def _mark_most_as_slow(items):
    """Of the cases of a test marked few(n), n stay, the last and the first among them; the others become slow ones."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            cases[item.parent, item.originalname].append(item)
    for found in cases.values():
        (count,) = found[0].get_closest_marker("few").args
        last = len(found) - 1
        kept = {last - round(place * last / max(count - 1, 1)) for place in range(count)}
        for place in set(range(len(found))) - kept:
            found[place].add_marker("slow")


def pytest_collection_finish():
    # What was imported by now stays: no collection of garbage need walk it, and every server that stops collects.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Tracing makes many objects and little garbage: walks through them were 8 % of the exports' tests.
    gc.set_threshold(200_000, 50, 1000)


def pytest_terminal_summary(terminalreporter):
    """Prints the time of the tests by package, and the ten that took longest."""
    seconds = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] += report.duration
    if len(seconds) < 50:
        return
    packages = defaultdict(float)
    for test, duration in seconds.items():
        packages["/".join(Path(test.split("::")[0]).parts[1:-1]) or "tests"] += duration
    terminalreporter.section("seconds of the tests by package")
    for package, duration in sorted(packages.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{duration:8.1f}  {package}")
    terminalreporter.section("the ten tests that took longest (more than 5 s needs a comment that says why)")
    for test, duration in sorted(seconds.items(), key=lambda item: -item[1])[:10]:
        terminalreporter.write_line(f"{duration:8.1f}  {test}")


@contextlib.contextmanager
def functions_run(*, eagerly):
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eagerly)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@pytest.fixture(scope="module")
def eagerly():
    """Functions run without graphs, which for a tiny model take far longer to build than to run."""
    with functions_run(eagerly=True):
        yield


@pytest.fixture
def in_graphs():
    """The exceptions in a module that runs eagerly."""
    with functions_run(eagerly=False):
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """made_once(name, make): the folder that `make(folder)` fills once for all workers of a run; not to be changed."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name, make):
        work, folder = base / f"{name}.making", base / name
        work.mkdir(exist_ok=True)
        with files.locked(work, wait=True):
            if not folder.exists():
                # A failed or killed attempt leaves a folder under another name.
                attempt = Path(tempfile.mkdtemp(dir=base))
                make(attempt)
                attempt.rename(folder)
        return folder

    return made


@pytest.fixture(scope="session")
def shared():
    """The folder of reference data beside the checkout (or $ALBERT_TF_SHARED); tests that need it skip without it."""
    path = Path(os.environ.get("ALBERT_TF_SHARED", ROOT.parent / "shared"))
    if not (path / "gold").is_dir():
        pytest.skip(f"no reference data at {path}; set ALBERT_TF_SHARED to run this test")
    return path


@pytest.fixture(scope="session")
def command_runners():
    """command_runners(without_tensorflow): the process that `run_module` forks its commands from, started once."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def started(*, without_tensorflow):
            command = [sys.executable, str(ROOT / "tests" / "command_runner.py")]
            command += ["without_tensorflow"] * without_tensorflow
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            runner = stack.enter_context(subprocess.Popen(command, env=environment, **pipes))
            stack.callback(runner.stdin.close)
            assert runner.stdout.readline() == "ready\n"
            return runner

        yield started


@pytest.fixture(scope="session")
def run_module(command_runners, tmp_path_factory):
    """Runs `python -m MODULE ARGUMENTS`; returns the finished process with its output as text.

    Options: `cwd` (the checkout), `variables` of the environment that our own code reads, `env` (that of the tests),
    `timeout` in seconds, `without_tensorflow` (neither TensorFlow nor Keras can be imported), `eagerly` (TensorFlow
    builds no graphs). With `env`, or `fresh=True`, in an interpreter of its own: what TensorFlow and Keras read when
    they are imported counts then, and what they print.
    """

    def run(
        module,
        *arguments,
        cwd=ROOT,
        variables=None,
        env=None,
        timeout=240,
        fresh=False,
        without_tensorflow=False,
        eagerly=False,
    ):
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = (env or os.environ | {"PYTHONPATH": str(ROOT)}) | (variables or {})
        if fresh or env:
            options = {"cwd": cwd, "env": environment, "capture_output": True, "text": True, "timeout": timeout}
            return subprocess.run(command, **options)
        runner, folder = command_runners(without_tensorflow=without_tensorflow), tmp_path_factory.mktemp("command")
        outputs = {name: str(folder / name) for name in ("stdout", "stderr")}
        request = {"module": module, "arguments": command[3:], "cwd": str(cwd), "environment": dict(environment)}
        print(json.dumps(request | {"timeout": timeout, "eagerly": eagerly} | outputs), file=runner.stdin, flush=True)
        status = json.loads(runner.stdout.readline())
        stdout, stderr = (Path(path).read_text() for path in outputs.values())
        if status is None:
            raise subprocess.TimeoutExpired(command, timeout, stdout, stderr)
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    return run


@pytest.fixture(scope="session")
def topics(tmp_path_factory):
    """Python's help topics as a corpus of documents, one paragraph a line, without the underlines of headings."""
    from pydoc_data.topics import topics as texts

    documents = []
    for _, text in sorted(texts.items()):
        without_rules = re.sub(r"(?m)^[ \t]*([*=\-~^\"])\1{2,}[ \t]*$", "", text)
        paragraphs = [" ".join(one.split()) for one in re.split(r"\n\s*\n", without_rules)]
        documents.append("\n".join(filter(None, paragraphs)))
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_data(made_once, topics, run_module):
    """Dynamic SOP records of the topics, 32 tokens long, with a vocabulary of 500 pieces; not to be changed."""

    def make(folder):
        made = run_module(
            "tfrecords.train_tokenizer", f"--input={topics}", f"--output_prefix={folder}/spm", "--vocab_size=500"
        )
        assert made.returncode == 0, made.stderr
        built = run_module(
            *("tfrecords.create_pretraining_data", f"--input={topics}", f"--tokenizer={folder}/spm.model"),
            *(f"--output_dir={folder}/data", "--split_sentences", "--masking=dynamic", "--max_seq_length=32"),
            *("--max_predictions_per_seq=5", "--held_out_fraction=0.1", "--seed=1"),
        )
        assert built.returncode == 0, built.stderr
        # Every command ends with the next one.
        assert "next: python -m tfrecords.create_pretraining_data" in made.stderr
        assert built.stderr.splitlines()[-1].startswith("next: python -m albert_tf.run_pretraining --train_data=")

    return made_once("tiny_data", make) / "data"


@pytest.fixture(scope="session")
def tiny_settings(tmp_path_factory, tiny_data):
    """Settings of a pre-training run of four steps on the tiny records, into a folder of its own."""
    from albert_tf import AlbertConfig
    from albert_tf.training.pretraining import PretrainingSettings

    folder = tmp_path_factory.mktemp("settings")
    config = AlbertConfig(
        vocab_size=500, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=48, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
    )  # fmt: skip
    config.to_json(folder / "config.json")
    return PretrainingSettings(
        config=str(folder / "config.json"), train_data=str(tiny_data), eval_data=str(tiny_data),
        output_dir=str(folder / "run"), learning_rate=0.01, train_batch_size=8, num_train_steps=4, num_warmup_steps=1,
        save_checkpoints_steps=2, max_eval_steps=2
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_run(tiny_settings):
    """A model folder that pre-training wrote, without graphs, which take longer to build than to run."""
    from albert_tf.training.pretraining import pretrain

    with functions_run(eagerly=True):
        return pretrain(tiny_settings)
