"""A fine-tuning that takes seconds, and the folder it leaves."""

import pytest

from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from tests.albert_tf.training.classes import write_classes


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
