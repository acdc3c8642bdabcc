"""Runs of every kind that are made once, and a fine-tuning that takes seconds."""

import pytest
import tensorflow as tf

from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from tests.albert_tf.training import trainers
from tests.albert_tf.training.classes import write_classes


@pytest.fixture(scope="session")
def place(made_once, topics, tiny_data):
    """place(name): a folder that runs read, made once for all workers; see trainers.make_place."""

    def made(name):
        return made_once(name, lambda folder: trainers.make_place(name, folder, topics, tiny_data))

    return made


@pytest.fixture(scope="session")
def run_settings(place, trained):
    """run_settings(name): of a run of trainers.KINDS."""
    return lambda name: trainers.settings_of(name, place, trained)


@pytest.fixture(scope="session")
def trained(made_once, place):
    """trained(name): the folder of an uninterrupted run of trainers.KINDS, not to be changed.

    With killed=True a folder as a kill -9 after the third of its steps leaves it: the same run's at that moment.
    """

    def make(name, folder):
        before = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(True)
        try:
            settings = trainers.settings_of(name, place, trained)
            with pytest.MonkeyPatch.context() as patch:
                for phase in ("text_phase", "task_phase") if name == "compression" else ("",):
                    killed = folder / f"killed {phase}".strip()
                    trainers.at_step(patch, 3, lambda _, to=killed: trainers.copy(folder / "whole", to), phase)
                trainers.train(name, settings, folder / "whole")
        finally:
            tf.config.run_functions_eagerly(before)

    def trained(name, killed=False):
        # Both phases of a compression are of one run.
        run, _, phase = name.partition(", ")
        folder = made_once(f"run {run}", lambda folder: make(run, folder))
        return folder / (f"killed {phase}".strip() + "_phase" * bool(phase) if killed else "whole")

    return trained


@pytest.fixture(scope="module")
def class_settings(tmp_path_factory, tiny_run):
    folder = tmp_path_factory.mktemp("classes")
    write_classes(folder)
    return FinetuningSettings(
        task="classification", data_dir=str(folder), init_from=str(tiny_run), output_dir=str(folder / "run"),
        learning_rate=1e-3, train_batch_size=8, num_train_steps=5, save_checkpoints_steps=2, albert_dropout=0.1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finetuned(class_settings):
    return finetuning.finetune(class_settings)
