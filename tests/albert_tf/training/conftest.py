"""Runs of every kind that are made once."""

import dataclasses

import pytest
import tensorflow as tf

from tests.albert_tf.training import trainers


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
                trainers.at_step(patch, 3, lambda _: trainers.copy(folder / "whole", folder / "killed"))
                trainers.train(name, settings, folder / "whole")
        finally:
            tf.config.run_functions_eagerly(before)

    def trained(name, killed=False):
        return made_once(f"run {name}", lambda folder: make(name, folder)) / ("killed" if killed else "whole")

    return trained


@pytest.fixture(scope="session")
def finetuned(trained):
    """The folder of a finished fine-tuning, not to be changed."""
    return trained("fine-tuning")


@pytest.fixture(scope="session")
def class_settings(run_settings, finetuned):
    return dataclasses.replace(run_settings("fine-tuning"), output_dir=str(finetuned))
