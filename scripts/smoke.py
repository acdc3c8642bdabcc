"""From text to an answer over gRPC with the installed commands alone; started by `scripts.release smoke`."""

import importlib.metadata
import socket
import subprocess
import time
from pathlib import Path

SENTENCES = ("the cat sat on the mat", "a dog ran in the park", "the sun is warm today", "rain fell on the roof")


def albert_tf(*arguments: str) -> str:
    """Runs `albert-tf` and returns what it prints."""
    ended = subprocess.run(["albert-tf", *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"albert-tf {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr}")
    return ended.stdout


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    """Trains a vocabulary and a model of the smallest size, exports it, serves it, and asks it."""
    version = importlib.metadata.version("albert-tf")
    assert albert_tf("--version").startswith(f"albert-tf {version} ("), albert_tf("--version")
    Path("corpus.txt").write_text("\n\n".join("\n".join(f"{s} {n}." for s in SENTENCES) for n in range(200)))
    albert_tf(
        "train-tokenizer", "--input=corpus.txt", "--output_prefix=spm/spm", "--vocab_size=120", "--nohard_vocab_limit"
    )
    albert_tf("examples", "--input=corpus.txt", "--output_dir=data", "--tokenizer=spm/spm.model", "--max_seq_length=32")
    albert_tf(
        "pretrain", "--config=albert_tiny", "--train_data=data/train-*", "--eval_data=data/eval-*", "--output_dir=run",
        "--num_train_steps=2", "--num_warmup_steps=0", "--train_batch_size=4", "--max_eval_steps=1",
    )  # fmt: skip
    albert_tf("export", "--model=run", "--output_dir=models/tiny", "--inputs=text", "--check")
    port = free_port()
    server = subprocess.Popen(
        ["albert-tf", "serve", f"--port={port}", "--model_name=tiny", f"--model_base_path={Path.cwd()}/models/tiny"]
    )
    try:
        deadline = time.monotonic() + 120
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.2)
        answer = albert_tf("ask", f"--target=127.0.0.1:{port}", "--model=tiny", "--text=the cat sat on the [MASK]")
    finally:
        server.terminate()
        server.wait(60)
    assert answer.strip(), "no answer"
    print(answer)


if __name__ == "__main__":
    main()
