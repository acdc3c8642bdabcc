"""The command `albert-tf`: one name for all commands of the three packages.

    albert-tf finetune --task=sst2 --data_dir=glue/SST-2 --init_from=run --output_dir=sst2
    albert-tf export --model=sst2 --output_dir=models/sst2 --inputs=text

`albert-tf finetune` runs `python -m albert_tf.run_finetuning`.
"""

import difflib
import importlib
import importlib.util
import sys

from tfrecords.base import script

# Name: module, and what it does.
COMMANDS = {
    "train-tokenizer": ("tfrecords.train_tokenizer", "train a vocabulary on your text"),
    "examples": ("tfrecords.create_pretraining_data", "turn text into training examples"),
    "inspect": ("tfrecords.inspect_examples", "show and check training examples"),
    "pretrain": ("albert_tf.run_pretraining", "pre-train a model"),
    "finetune": ("albert_tf.run_finetuning", "fine-tune a model on a task or on your own table"),
    "evaluate": ("albert_tf.run_evaluation", "measure a model on held-out data"),
    "ensemble": ("albert_tf.run_ensemble", "measure several fine-tuned models as one"),
    "score-squad": ("albert_tf.score_squad", "score a file of SQuAD predictions"),
    "search": ("albert_tf.search", "find the texts nearest to a query"),
    "mine-negatives": ("albert_tf.mine_negatives", "find hard negatives for training on pairs"),
    "compress": ("albert_tf.compress", "make a smaller model of a larger one"),
    "convert": ("albert_tf.convert_checkpoint", "convert weights between file formats"),
    "analyse": ("albert_tf.analysis", "count parameters and operations of configurations"),
    "layer-distances": ("albert_tf.analysis.layer_distances", "measure how each layer changes its input"),
    "export": ("serving.export", "write a model to serve: a SavedModel or a LiteRT file"),
    "start": ("serving.start", "start a model behind OpenAI's API, REST and gRPC"),
    "serve": ("serving.model_server", "serve exported models over gRPC and REST"),
    "gateway": ("serving.gateway", "answer the clients of OpenAI, Cohere and others"),
    "ask": ("serving.client", "send texts to a model server"),
    "score": ("serving.score", "answer files of texts"),
    "benchmark": ("serving.benchmark", "measure the latency of a model server"),
}


def help_text() -> str:
    """Returns what `albert-tf --help` prints."""
    lines = ["Usage: albert-tf COMMAND [--flag=value ...]", "", "From raw text to answers over gRPC.", "", "Commands:"]
    lines += [f"  {name:<18}{about}" for name, (_, about) in COMMANDS.items()]
    lines += [
        "",
        "albert-tf COMMAND --help lists a command's flags; albert-tf --version prints the version.",
        "",
        "Examples:",
        *__doc__.splitlines()[2:4],
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Runs a command, and ends the process with its status."""
    name, rest = (arguments or ["--help"])[0], arguments[1:]
    if name in ("--help", "-h", "help"):
        print(help_text())
    elif name == "--version":
        print(script.version_line())
    elif name in COMMANDS:
        module = COMMANDS[name][0]
        if importlib.util.find_spec(module).submodule_search_locations:
            module += ".__main__"
        script.names |= {module: f"albert-tf {name}" for name, (module, _) in COMMANDS.items()}
        sys.argv = [f"albert-tf {name}", *rest]
        importlib.import_module(module).run()
    else:
        near = difflib.get_close_matches(name, [*COMMANDS, "--help", "--version"], n=1)
        advice = f"; did you mean '{near[0]}'?" if near else ""
        print(f"error: unknown command '{name}'{advice} (albert-tf --help lists the commands)", file=sys.stderr)
        sys.exit(2)


def run() -> None:
    """Runs `albert-tf`."""
    try:
        main(sys.argv[1:])
    except BrokenPipeError:
        script.leave_a_closed_pipe()


if __name__ == "__main__":
    run()
