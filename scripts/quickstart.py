"""The whole road on one small model, each stage by the command that a user would give: see quickstart.sh."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts.server import check_port, free_port, running_gateway, running_server, server_command

from scripts.choose_corpus import corpus_pattern, fingerprint
from scripts.cut_corpus import has_few_documents
from scripts.stages import Road, shell_line
from scripts.summary import print_summary
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir
from tfrecords.corpus import find_files

MODELS = ("ids", "text")
LENGTHS = "16,32,64,128"
DEFAULT_OUTPUT_DIR = Path("quickstart")
_PYTHON = [sys.executable, "-m"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quickstart.sh", description=__doc__)
    parser.add_argument(
        "--corpus", default="", help="your text: a .txt or .jsonl file (each also .gz), a folder or a glob"
    )
    parser.add_argument("--output_dir", type=Path, default=DEFAULT_OUTPUT_DIR, help="where everything goes")
    parser.add_argument("--vocab_size", type=int, default=2000, help="pieces; more for Chinese, say 8000")
    parser.add_argument("--steps", type=int, default=1500, help="training steps; fewer for a quicker look")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of measuring at each length")
    parser.add_argument("--port", type=int, default=0, help="gRPC port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--once", action="store_true", help="end after the summary, and do not go on serving")
    arguments = parser.parse_args()
    if arguments.steps < 10:
        parser.error(f"--steps={arguments.steps} teaches nothing; give 10 or more")
    if not (arguments.seconds > 0 and 0 <= arguments.port < 65536):
        parser.error(f"--seconds={arguments.seconds} must be above 0 and --port={arguments.port} from 0 to 65535")
    # quickstart.sh has changed to the clone; paths that the user gives are relative to where they stand.
    arguments.caller = Path(os.environ.get("QUICKSTART_CALLER", "."))
    if arguments.output_dir != DEFAULT_OUTPUT_DIR:
        arguments.output_dir = arguments.caller / arguments.output_dir.expanduser()
    return arguments


def run_stages(arguments: argparse.Namespace, road: Road) -> str:
    """Walks the road up to the SavedModels; returns the file pattern of the corpus."""
    work = arguments.output_dir
    corpus = _corpus(arguments, road)
    road.stage(
        "1. Train a SentencePiece vocabulary",
        work / "tokenizer",
        [
            *_PYTHON,
            "tfrecords.train_tokenizer",
            f"--input={corpus}",
            f"--output_prefix={work}/tokenizer/spm",
            f"--vocab_size={arguments.vocab_size}",
            "--nohard_vocab_limit",
        ],
    )
    road.stage(
        "2. Write training and held-out examples: sentence order and masked n-grams",
        work / "data",
        [
            *_PYTHON,
            "tfrecords.create_pretraining_data",
            f"--input={corpus}",
            f"--output_dir={work}/data",
            f"--tokenizer={work}/tokenizer/spm.model",
            "--split_sentences",
            "--masking=dynamic",
            "--pair_task=sop",
            "--ngram=1",
            "--max_seq_length=64",
            "--max_predictions_per_seq=10",
            f"--dupe_factor={_passes(corpus)}",
            "--held_out_fraction=0.1",
            "--seed=1",
        ],
    )
    train, held_out = f"--train_data={work}/data", f"--eval_data={work}/data"
    road.stage(
        "3. Pre-train a small ALBERT",
        work / "run",
        [
            *_PYTHON,
            "albert_tf.run_pretraining",
            "--config=scripts/quickstart_config.json",
            train,
            held_out,
            f"--output_dir={work}/run",
            "--optimizer=muon",
            "--learning_rate=0.005",
            "--train_batch_size=32",
            # Fewer steps are over before compiling them has paid.
            "--jit_compile" if arguments.steps >= 300 else "--nojit_compile",
            f"--num_train_steps={arguments.steps}",
            f"--num_warmup_steps={arguments.steps // 10}",
            # Each look at the held-out documents costs as much as several steps.
            f"--save_checkpoints_steps={max(arguments.steps // 10, 5)}",
        ],
        resumes=True,
    )
    road.stage(
        "4. Evaluate on the held-out documents",
        work / "evaluation.json",
        [
            *_PYTHON,
            "albert_tf.run_evaluation",
            f"--model={work}/run",
            train,
            held_out,
            f"--output={work}/evaluation.json",
            "--max_eval_steps=100",
        ],
    )
    for inputs in MODELS:
        road.stage(
            f"5. Export a SavedModel with {inputs} inputs",
            work / "models" / inputs,
            [
                *_PYTHON,
                "serving.export",
                f"--model={work}/run",
                f"--output_dir={work}/models/{inputs}",
                f"--inputs={inputs}",
            ],
        )
    return corpus


def _corpus(arguments: argparse.Namespace, road: Road) -> str:
    """The file pattern of the corpus; what lies behind it becomes part of every stamp."""
    work = arguments.output_dir
    if not arguments.corpus:
        corpus = work / "corpus.txt"
        road.mix(sys.version)
        road.stage(
            "0. Write Python's help topics as a corpus", corpus, [*_PYTHON, "scripts.python_topics", str(corpus)]
        )
        return str(corpus)
    pattern = corpus_pattern(arguments.corpus, arguments.caller)
    road.mix(*fingerprint(pattern))
    if not has_few_documents(pattern):
        return pattern
    corpus = work / "cut_corpus.txt"
    command = [*_PYTHON, "scripts.cut_corpus", pattern, str(corpus)]
    road.stage("0. Cut the corpus's few documents, so that parts can be held out", corpus, command)
    return str(corpus)


def _passes(corpus: str) -> int:
    """Passes over the text, each with other cuts: twenty for a small corpus, one for a large."""
    size = sum(path.stat().st_size for path in find_files(corpus))
    return max(1, min(20, 10_000_000 // max(size, 1)))


def _what_is_sent(model: str, corpus: str, work: Path) -> list[str]:
    """The benchmark's random token ids go up to 1000: a smaller vocabulary, of a small corpus, gets that corpus."""
    pieces = (work / "tokenizer" / "spm.vocab").read_text("utf-8").count("\n")
    small = model == "ids" and pieces < 1000
    return [f"--text_file={corpus}", f"--tokenizer={work}/tokenizer/spm.model"] if small else []


def serve_and_measure(arguments: argparse.Namespace, road: Road, corpus: str) -> None:
    work = arguments.output_dir
    models = _bases(work)
    benchmarks = {
        name: [f"--model={name}", f"--lengths={LENGTHS}", f"--seconds={arguments.seconds}"]
        + [f"--output_dir={work}/benchmark/{name}", *_what_is_sent(name, corpus, work)]
        for name in MODELS
    }
    learned = [
        *_PYTHON,
        "scripts.learned",
        f"--data={work}/data",
        f"--run={work}/run",
        f"--output_dir={work}",
    ]
    server = server_command(models, work, arguments.port or 8500)
    road.commands.append(("6. Serve both models", shell_line(server)))
    for name, flags in benchmarks.items():
        command = [*_PYTHON, "serving.benchmark", f"--target=127.0.0.1:{arguments.port or 8500}", *flags]
        road.commands.append((f"7. Benchmark the {name} model", shell_line(command)))

    def run() -> None:
        with running_server(models, work, arguments.port or free_port()) as target:
            for flags in benchmarks.values():
                command = [*_PYTHON, "serving.benchmark", f"--target={target}", *flags]
                print(f"$ {shell_line(command)}", flush=True)
                subprocess.run(command, check=True)
            print("Masking words of held-out text, and asking the server for them ...", flush=True)
            subprocess.run([*learned, f"--target={target}"], check=True)

    road.step(
        "6. and 7. Serve both models and measure them over gRPC", work / "benchmark", f"{server[0]} {benchmarks}", run
    )


def _bases(work: Path) -> dict[str, Path]:
    return {name: (work / "models" / name).resolve() for name in MODELS}


def keep_serving(arguments: argparse.Namespace) -> None:
    """Serves until Ctrl-C, with the gateway in front of the model that takes text."""
    work = arguments.output_dir
    with (
        running_server(_bases(work), work, arguments.port or free_port()) as target,
        running_gateway(target, "text", work, _gateway_port()) as url,
    ):
        print(f"\nTry it in a browser: {url}/    Ctrl-C stops", flush=True)
        signal.pause()


def _gateway_port() -> int:
    """The gateway's own, unless something listens there."""
    try:
        check_port(8080)
        return 8080
    except UserError:
        return free_port()


def main() -> None:
    arguments = parse_arguments()
    # A plain `kill` unwinds as Ctrl-C does, so that the server is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.port:
        check_port(arguments.port)
    make_output_dir(arguments.output_dir)
    road = Road(arguments.output_dir)
    road.mix(Path("requirements.txt").read_text(), Path("scripts/quickstart_config.json").read_text())
    corpus = run_stages(arguments, road)
    serve_and_measure(arguments, road, corpus)
    print_summary(arguments.output_dir, road)
    if not arguments.once:
        keep_serving(arguments)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError as error:
        if error.returncode < 0:
            name = signal.Signals(-error.returncode).name
            sys.exit(f"error: the stage was ended by {name} (SIGKILL often means: out of memory); run again to go on")
        # The stage has said what is wrong; its status is ours.
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
