"""The command `albert-tf`: one name for all commands of the three packages.

    albert-tf finetune --task=sst2 --data_dir=glue/SST-2 --init_from=run --output_dir=sst2
    albert-tf export --model=sst2 --output_dir=models/sst2 --inputs=text

`albert-tf finetune` runs `python -m albert_tf.run_finetuning`.
"""

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path

from serving.lite.description import holds_version
from serving.manifest import SAVED_MODEL, versions_of
from tfrecords.base import files, script

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
    "ask": ("serving.client", "send texts to a model server or a LiteRT version"),
    "score": ("serving.score", "answer files of texts"),
    "benchmark": ("serving.benchmark", "measure the latency of a model server"),
}


# The commands of the client's package; a LiteRT version answers in this process.
CLIENT_COMMANDS = {
    "predict": ("serving.client", "send texts to a model server"),
    "ask": ("serving.lite", "answer texts with a LiteRT version"),
    "start": ("serving.lite.start", "start LiteRT versions behind OpenAI's API, REST and gRPC"),
}
# The modules of commands that take a LiteRT version, or any export, as --model; `serving.score` takes both.
_OF_LITERT = {"ask": "serving.lite", "search": "serving.litert.search"}
_OF_EXPORTS = {"evaluate": "serving.evaluate"}


def help_text() -> str:
    """Returns what `albert-tf --help` prints."""
    examples = ["Examples:", *__doc__.splitlines()[2:4]]
    return "\n".join([*_help_lines("albert-tf", "From raw text to answers over gRPC.", COMMANDS), "", *examples])


def _help_lines(program: str, about: str, commands: dict[str, tuple[str, str]]) -> list[str]:
    lines = [f"Usage: {program} COMMAND [--flag=value ...]", "", about, "", "Commands:"]
    lines += [f"  {name:<18}{about}" for name, (_, about) in commands.items()]
    return [*lines, "", f"{program} COMMAND --help lists a command's flags; {program} --version prints the version."]


def main(arguments: list[str], program: str = "albert-tf") -> None:
    """Runs a command, and ends the process with its status."""
    commands = COMMANDS if program == "albert-tf" else CLIENT_COMMANDS
    name, rest = (arguments or ["--help"])[0], arguments[1:]
    if name in ("--help", "-h", "help"):
        is_client = program != "albert-tf"
        print("\n".join(_help_lines(program, "Answers of models.", commands)) if is_client else help_text())
    elif name == "--version":
        print(script.version_line())
    elif name in commands:
        module = commands[name][0]
        if commands is COMMANDS and name in _OF_LITERT | _OF_EXPORTS:
            module, rest = _for_export(name, module, rest)
        if importlib.util.find_spec(module).submodule_search_locations:
            module += ".__main__"
        script.names |= {module: f"{program} {name}" for name, (module, _) in commands.items()}
        sys.argv = [f"{program} {name}", *rest]
        importlib.import_module(module).run()
    else:
        near = difflib.get_close_matches(name, [*commands, "--help", "--version"], n=1)
        advice = f"; did you mean '{near[0]}'?" if near else ""
        print(f"error: unknown command '{name}'{advice} ({program} --help lists the commands)", file=sys.stderr)
        sys.exit(2)


def _for_export(name: str, module: str, rest: list[str]) -> tuple[str, list[str]]:
    """Returns a command's module and arguments: others if its --model is an export."""
    given = dict(one.lstrip("-").partition("=")[::2] for one in rest)
    folder = given.get("model", "")
    if name == "search" and not folder and (about := Path(given.get("index_dir", "")) / "index.json").is_file():
        # The index is asked with the model that built it.
        folder = files.read_object(about).get("source", "")
    if not folder:
        return module, rest
    if name in _OF_EXPORTS:
        is_export = versions_of(Path(folder)) or (Path(folder) / SAVED_MODEL).is_file() or holds_version(folder)
        return _OF_EXPORTS[name] if is_export else module, rest
    if not holds_version(folder):
        return module, rest
    if name == "ask":
        rest = [one.replace("--model=", "--folder=", 1) if one.startswith("--model=") else one for one in rest]
    return _OF_LITERT[name], rest


def run() -> None:
    """Runs `albert-tf`, or `albert-client`."""
    try:
        main(sys.argv[1:], "albert-client" if Path(sys.argv[0]).stem == "albert-client" else "albert-tf")
    except BrokenPipeError:
        script.leave_a_closed_pipe()


if __name__ == "__main__":
    run()
