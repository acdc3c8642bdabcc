"""Every kind of training run, at a size that takes a second: four steps, checkpoints after two and four of them."""

import contextlib
import csv
import dataclasses
import io
import os
import shutil
from typing import Any, NamedTuple

from albert_tf.compression import run as compression
from albert_tf.compression.distillation import TextDistillation
from albert_tf.compression.settings import CompressSettings
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning, pretraining
from albert_tf.training.loop import training as loop
from albert_tf.training.pretraining_settings import PretrainingSettings
from tests.albert_tf.tiny import small
from tests.albert_tf.training.classes import write_classes, write_pairs
from tfrecords import create_pretraining_data


class Kind(NamedTuple):
    """How runs of a kind are trained, and what evaluates them."""

    train: Any
    evaluates: type


DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
MASKED = Kind(pretraining.pretrain, pretraining.Pretraining)
TUNED = Kind(finetuning.finetune, finetuning.Finetuning)
KINDS = {
    **dict.fromkeys(("masked", "two phases", "permutation", "packed", "halting", "equilibrium"), MASKED),
    **dict.fromkeys(("fine-tuning", "parts of fine-tuning", "distillation", "pairs"), TUNED),
    "compression": Kind(compression.run, TextDistillation),
}
# By the name of a run of pre-training: its records, and what its settings and its configuration have otherwise.
PRETRAINED = {
    # Each step draws its depth.
    "masked": ("words", {}, {"random_depth_min": 1}),
    "two phases": (
        "words",
        dict(
            second_train_data="words", second_from_step=1, second_train_batch_size=4, gradient_accumulation_steps=2,
            walk="recompute", global_clipnorm=0.5, log_steps=1, eval_data="", config="", init_from="packed"
        ),
        {}
    ),
    "permutation": (
        "permutations",
        dict(memory_length=24, gradient_accumulation_steps=2, eval_batch_size=4),
        {"position_type": "relative"}
    ),
    "packed": ("short", {"train_batch_size": 16, "eval_data": ""}, {"max_position_embeddings": 96}),
    # What their steps measured is in the history too.
    "halting": ("words", {"log_steps": 4}, {"halting": "act", "gate_init": 0.5}),
    "equilibrium": ("words", {"log_steps": 4}, {"equilibrium_solver": "anderson", "equilibrium_max_steps": 3})
}  # fmt: skip


# Records of other kinds; of the short ones half is padding.
BUILT = {
    "permutations": dict(objective="permutation", max_seq_length=32, chunk_megabytes=0.03, held_out_fraction=0.2),
    "short": dict(max_seq_length=96, masking="dynamic", held_out_fraction=0.0, short_seq_prob=1.0),
}


def make_place(name, folder, topics, words):
    """Fills a folder with what runs read: records of that name, a task, or configurations."""
    if name == "words":
        shutil.copytree(words, folder, dirs_exist_ok=True)
    elif name == "classes":
        write_classes(folder)
        (folder / "text.txt").write_text(topics.read_text()[:4000])
    elif name == "pairs":
        write_pairs(folder)
    elif name in BUILT:
        few = folder.parent / f"{folder.name}.txt"
        few.write_text(topics.read_text()[:100_000])
        given = dict(input=str(few), tokenizer=str(words), output_dir=str(folder))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            create_pretraining_data.main(
                create_pretraining_data.CreateSettings(**given, **BUILT[name], split_sentences=True, seed=1, workers=1)
            )
        next_command = said.getvalue().splitlines()[-1]
        is_permuted = "--config=albert_xlnet_base" in next_command
        assert is_permuted == (name == "permutations") and "run_pretraining --train_data=" in next_command
    else:
        config = small(vocab_size=500, max_position_embeddings=48, **DROPOUT)
        for kind, (_, _, changes) in PRETRAINED.items():
            config.replace(**changes).to_json(folder / f"{kind}.json")


def settings_of(name, place, trained):
    """Returns the settings of a run; `place(name)` gives a folder that runs read, `trained(name)` a finished run."""
    if name in PRETRAINED:
        records, changes, _ = PRETRAINED[name]
        records = str(place(records))
        changes = changes | {key: records for key in ("second_train_data",) if key in changes}
        changes |= {key: str(trained(changes[key])) for key in ("init_from",) if key in changes}
        return PretrainingSettings(
            train_data=records, output_dir="",
            **dict(
                config=str(place("configs") / f"{name}.json"), eval_data=records, learning_rate=0.01,
                train_batch_size=8, num_train_steps=4, num_warmup_steps=1,
                save_checkpoints_steps=2, eval_batch_size=8, max_eval_steps=1
            ) | changes
        )  # fmt: skip
    task = dict(task="classification", data_dir=str(place("classes")), output_dir="", num_train_steps=4)
    if name == "pairs":
        # In two parts, whose vectors are compared; most texts are in several rows.
        task |= dict(task="pairs", data_dir=str(place("pairs")), gradient_accumulation_steps=2)
    if name == "compression":
        return CompressSettings(
            model=str(trained("fine-tuning")), vocab_from="corpus", held_out_rows=16, output_dir="",
            text=f"{place('classes')}/text.txt", num_train_steps=4,
            max_seq_length=16, train_batch_size=8, learning_rate=5e-3, save_checkpoints_steps=2
        )  # fmt: skip
    changes = {"gradient_accumulation_steps": 2} if name == "parts of fine-tuning" else {}
    changes |= {"teacher": str(trained("fine-tuning"))} if name == "distillation" else {}
    # Two batches an epoch: a run goes on at the begin of an epoch, or within one.
    return FinetuningSettings(
        init_from=str(trained("masked")), learning_rate=1e-3, train_batch_size=8 if name == "pairs" else 16,
        save_checkpoints_steps=2, max_seq_length=32, albert_dropout=0.1, **task, **changes
    )  # fmt: skip


def train(name, settings, folder):
    """Trains in a folder, or goes on there."""
    return KINDS[name].train(dataclasses.replace(settings, output_dir=str(folder)))


def pretrain(settings, folder, **changes):
    """Pre-trains in a folder, or goes on there, with some settings changed."""
    return pretraining.pretrain(dataclasses.replace(settings, **{"output_dir": str(folder)} | changes))


def table(path, delimiter=","):
    """Returns the rows of a table in a file."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def history(folder):
    """Returns the rows of a run's history."""
    return table(folder / "history.csv")


def at_step(patch, number, act):
    """Has `act(folder)` called after update `number` of a run."""
    step = loop.TrainingReport.step

    def called(self, *arguments):
        step(self, *arguments)
        if self.bar.n == number:
            act(self.history.path.parent)

    patch.setattr(loop.TrainingReport, "step", called)


def copy(run, to):
    """Copies the folder of a run as it lies there."""
    shutil.copytree(run, to, dirs_exist_ok=True)


def send(number):
    """Returns what sends this process a signal."""
    return lambda folder: os.kill(os.getpid(), number)
