"""Runs of the commands that train, and runs that one version begins and the other ends."""

import csv
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .commands import preload, run
from .configurations import MODERN, SIZES
from .filled import datasets
from .groups import Case, Folders
from .texts import PIECES, corpus, sentences, tables, wordpiece

CONFIG = SIZES | {"vocab_size": len(PIECES), "num_hidden_layers": 2, "max_position_embeddings": 48}
CONFIGS = {
    "albert": {},
    "modern": MODERN | {"position_type": "rotary"},
    "halting": {"halting": "act", "step_signal": "learned"},
    "equilibrium": {"equilibrium_solver": "anderson", "equilibrium_max_steps": 6},
    "random depth": {"random_depth_min": 1},
    "xlnet": {"position_type": "relative", "sharing": "none", "untie_biases": True},
    "bert": {"sharing": "none", "embedding_size": 8},
    # Wide enough for TensorFlow's fused kernels.
    "wide": {"hidden_size": 64, "intermediate_size": 512},
}
_STEPS = (
    "--train_batch_size=8", "--num_train_steps=4", "--num_warmup_steps=1", "--save_checkpoints_steps=2",
    "--seed=3", "--eval_batch_size=8", "--max_eval_steps=2", "--log_steps=1", "--learning_rate=0.01",
)  # fmt: skip
PRETRAININGS = {
    "lamb": ("albert", "dynamic"),
    "adamw, parts": ("albert", "static", "--optimizer=adamw", "--gradient_accumulation_steps=2"),
    "muon": ("albert", "dynamic", "--optimizer=muon"),
    "no packing": ("albert", "dynamic", "--nopack_rows"),
    "modern, loop": ("modern", "dynamic", "--walk=loop"),
    "halting, recompute": ("halting", "dynamic", "--walk=recompute"),
    "equilibrium": ("equilibrium", "dynamic", "--walk=equilibrium"),
    "random depth": ("random depth", "static"),
    "mixed bfloat16": ("albert", "dynamic", "--dtype_policy=mixed_bfloat16"),
    "two phases": ("albert", "dynamic", "--second_train_data={data}/static", "--second_from_step=2"),
    "fused": ("wide", "static", "--train_batch_size=16", "--nopack_rows"),
}
RESUMED_PRETRAININGS = ("lamb", "adamw, parts", "halting, recompute")
_FINE = (
    "--train_batch_size=8", "--num_train_steps=4", "--save_checkpoints_steps=2", "--seed=3", "--max_seq_length=24",
    "--learning_rate=0.01",
)  # fmt: skip
FINETUNINGS = {
    "classes": ("classification", "classes"),
    "classes from pre-training": ("classification", "classes", "--init_from={write}/muon", "--early_stopping=1"),
    "classes in parts, weighted": (
        "classification",
        "classes",
        "--gradient_accumulation_steps=2",
        "--class_weights=balanced",
    ),
    "exits": ("classification", "classes", "--early_exit"),
    "numbers": ("regression", "numbers", "--second_text_column=other"),
    "tags": ("tagging", "tags"),
    "squad1": ("squad1", "squad"),
    "squad2": ("squad2", "squad"),
    "race": ("race", "race"),
    "of a teacher": ("classification", "classes", "--teacher={write}/f_classes", "--distillation_weight=0.7"),
}
RESUMED_FINETUNINGS = ("classes", "exits", "squad2")
# What the runs are given. It is relative to the group's own folder: a resumed run asks for the same paths.
GIVEN = Path("given")
# In graphs, as users run them; the others eagerly.
_IN_GRAPHS = ("lamb", "fused", "classes", "squad2")


def cases(folders: Folders, what: str) -> Iterator[Case]:
    """Returns the cases of training that a group runs."""
    yield "libraries", preload
    yield "what is given", prepare, folders
    if what == "pretraining":
        for name in PRETRAININGS:
            yield f"pre-training, {name}", whole, "pretraining", name, folders
        for name in RESUMED_PRETRAININGS:
            yield f"resumed pre-training, {name}", resumed, what, name, folders
        yield "analysis", analysis, folders
    if what == "finetuning":
        yield "pre-training", whole, "pretraining", "muon", folders
        for name in FINETUNINGS:
            yield f"fine-tuning, {name}", whole, "finetuning", name, folders
        for name in RESUMED_FINETUNINGS:
            yield f"resumed fine-tuning, {name}", resumed, what, name, folders
    if what == "compression":
        yield "compression, encoder", whole, "compression", "encoder", folders
        yield "resumed compression", resumed, what, "encoder", folders


def prepare(folders: Folders) -> dict[str, Any]:
    """Writes what the runs are given."""
    shutil.rmtree(GIVEN, ignore_errors=True)
    GIVEN.mkdir(parents=True)
    wordpiece(GIVEN / "vocab.txt")
    corpus(GIVEN / "corpus.txt", 40)
    tables(GIVEN)
    (GIVEN / "text.txt").write_text("\n".join(sentences(60, 4)) + "\n")
    for split in ("train", "dev"):
        text = (GIVEN / "squad" / f"{split}-v2.0.json").read_text()
        (GIVEN / "squad" / f"{split}-v1.1.json").write_text(_answerable(text))
    for name, changes in CONFIGS.items():
        (GIVEN / f"{name}.json").write_text(json.dumps(CONFIG | changes))
    found = {}
    for kind in ("static", "dynamic", "permutation"):
        options = ("--objective=permutation",) if kind == "permutation" else (f"--masking={kind}",)
        arguments = (
            f"--input={GIVEN}/corpus.txt", f"--output_dir={GIVEN}/{kind}", f"--tokenizer={GIVEN}/vocab.txt",
            "--max_seq_length=32", "--held_out_fraction=0.2", "--seed=1", "--workers=1", *options,
        )  # fmt: skip
        found[kind] = run("tfrecords.create_pretraining_data", *arguments, folders=folders)["status"]
    return found


def _answerable(text: str) -> str:
    data = json.loads(text)
    for paragraph in data["data"][0]["paragraphs"]:
        paragraph["qas"] = [question for question in paragraph["qas"] if question["answers"]]
    return json.dumps(data)


def pretraining_flags(name: str, folders: Folders) -> list[str]:
    """Returns the flags of a pre-training run but for its folder."""
    config, records, *more = PRETRAININGS[name]
    data = [f"--train_data={GIVEN}/{records}", f"--eval_data={GIVEN}/{records}", f"--config={GIVEN}/{config}.json"]
    return [*data, *_STEPS, *(flag.format(data=GIVEN, write=folders.write) for flag in more)]


def finetuning_flags(name: str, folders: Folders) -> list[str]:
    """Returns the flags of a fine-tuning run but for its folder."""
    task, data, *more = FINETUNINGS[name]
    flags = [f"--task={task}", f"--data_dir={GIVEN}/{data}", *_FINE, f"--tokenizer={GIVEN}/vocab.txt"]
    flags += [flag.format(write=folders.write) for flag in more]
    return flags if any(flag.startswith("--init_from") for flag in flags) else [*flags, f"--config={GIVEN}/albert.json"]


def compression_flags(name: str, folders: Folders) -> list[str]:
    """Returns the flags of a compression but for its folder, and writes what it compresses."""
    model = folders.write / "bert"
    if not model.is_dir():
        flags = [f"--train_data={GIVEN}/static", f"--config={GIVEN}/bert.json", *_STEPS, "--num_train_steps=2"]
        run("albert_tf.run_pretraining", *flags, f"--output_dir={model}", folders=folders, eagerly=True)
        _without_dropout(model / "model.keras")
    flags = [f"--model={model}", f"--text={GIVEN}/text.txt", "--embedding_size=4", "--held_out_rows=16"]
    flags += ["--max_seq_length=16", "--num_train_steps=6", "--train_batch_size=8", "--learning_rate=0.005"]
    flags += ["--save_checkpoints_steps=2", "--num_warmup_steps=1", "--seed=3"]
    return [*flags, "--plan=1x2", "--lora_rank=2"]


def _without_dropout(path: Path) -> None:
    """Rewrites a model's file with dropout 0: a run whose teacher has dropout could not be resumed at first."""
    other = path.with_suffix(".part")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "config.json":
                data = data.replace(b'dropout_prob": 0.1', b'dropout_prob": 0.0')
            target.writestr(name, data)
    other.replace(path)


_RUNS = {
    "pretraining": ("albert_tf.run_pretraining", pretraining_flags, "{}"),
    "finetuning": ("albert_tf.run_finetuning", finetuning_flags, "f_{}"),
    "compression": ("albert_tf.compress", compression_flags, "c_{}"),
}


def whole(kind: str, name: str, folders: Folders) -> dict[str, Any]:
    """A run from its start to its end, with what it writes."""
    module, flags_of, form = _RUNS[kind]
    folder = folders.write / form.format(name)
    shutil.rmtree(folder, ignore_errors=True)
    return _run_to_end(module, flags_of(name, folders), folder, folders, name)


def resumed(kind: str, name: str, folders: Folders) -> dict[str, Any]:
    """A run that the version before began, ended by this one; it must be as if nobody had stopped it."""
    module, flags_of, form = _RUNS[kind]
    begun = folders.write / f"begun_{kind}_{name}"
    shutil.rmtree(begun, ignore_errors=True)
    flags = flags_of(name, folders)
    # A time budget that is over at once ends a run at its first checkpoint.
    first = run(
        module, *flags, f"--output_dir={begun}", "--max_hours=1e-9", folders=folders, eagerly=name not in _IN_GRAPHS
    )
    source = folders.read / begun.name
    folder = folders.write / f"ended_{kind}_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, folder)
    found = {"begun/status": first["status"]}
    found |= _run_to_end(module, flags, folder, folders, name)
    straight = weights_in(folders.write / form.format(name))
    same = straight.keys() <= found.keys() and all(np.array_equal(straight[key], found[key]) for key in straight)
    return found | {"as if nobody had stopped it": np.array(bool(straight) and same)}


def _run_to_end(module: str, flags: list[str], folder: Path, folders: Folders, name: str) -> dict[str, Any]:
    eagerly = name not in _IN_GRAPHS and os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow"
    found = run(module, *flags, f"--output_dir={folder}", folders=folders, eagerly=eagerly)
    if found["status"] != "0":
        raise RuntimeError(f"{module} ended with status {found['status']}: {found['stderr'][-2000:]}")
    # What is printed names speeds and memory.
    found = {"status": found["status"]}
    return found | history(folder) | weights_in(folder) | texts_in(folder)


_UNSTEADY = ("second", "wait", "per_s", "memory", "gib", "time", "hours", "mfu", "utilisation", "flops", "_ms")


def history(folder: Path) -> dict[str, str]:
    """The figures of history files that the machine's speed has no part in."""
    found = {}
    for path in sorted(folder.rglob("history.csv")):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        kept = [{k: v for k, v in row.items() if not any(word in k.lower() for word in _UNSTEADY)} for row in rows]
        found[str(path.relative_to(folder))] = "\n".join(json.dumps(row) for row in kept)
    return found


def weights_in(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of the .keras files of a folder, the optimizer's too."""
    found = {}
    for path in sorted(folder.glob("*.keras")):
        with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as file, h5py.File(file) as weights:
            found |= {f"{path.name}/{key}": np.asarray(value) for key, value in datasets(weights).items()}
    return found


# Of what a run writes: predictions, what is said of the task, of the model's quality.
_TEXTS = (".tsv", ".txt", ".json", ".jsonl")


def texts_in(folder: Path) -> dict[str, str]:
    """The predictions and descriptions that a run wrote, without times and paths."""
    found = {}
    unsteady = (*_UNSTEADY, str(folder.parent))
    for path in sorted(folder.glob("*")):
        if path.suffix in _TEXTS and path.name not in ("vocab.txt", "settings.json", "table.json", "compress.json"):
            lines = path.read_text(errors="replace").splitlines()
            kept = [line for line in lines if not any(word in line.lower() for word in unsteady)]
            found[f"text/{path.name}"] = "\n".join(kept)
    return found


def analysis(folders: Folders) -> dict[str, Any]:
    """What the analyses print and count."""
    found = {}
    for name in CONFIGS:
        config = GIVEN / f"{name}.json"
        found |= run("albert_tf.analysis", f"--config={config}", folders=folders, where=name)
    arguments = (f"--model={folders.write / 'lamb'}", f"--eval_data={GIVEN / 'static'}")
    arguments += (f"--train_data={GIVEN / 'static'}", f"--output={folders.scratch / 'figures.json'}")
    found |= run("albert_tf.run_evaluation", *arguments, folders=folders, where="evaluation")
    return found | {"figures": (folders.scratch / "figures.json").read_text()}
