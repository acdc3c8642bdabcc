"""Fine-tuning with the batch of a step cut into parts: the same run in less memory."""

import csv
import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints.formats import load_keras
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")

WORDS = ("the class is a value", "an expression", "a loop of statements and names that it raises", "it")


@pytest.fixture(scope="module")
def settings(tmp_path_factory, tiny_run):
    """Rows of different lengths, no dropout, whose masks would depend on the shape of a batch."""
    folder = tmp_path_factory.mktemp("numbers")
    lines = [f"{WORDS[n % 4]}\t{'good ' * (n % 3)}thing\t{n % 5 / 2}\n" for n in range(20)]
    for split, part in (("train", lines[:16]), ("dev", lines[16:])):
        (folder / f"{split}.tsv").write_text("text\tother\tlabel\n" + "".join(part))
    return FinetuningSettings(
        task="regression", data_dir=str(folder), second_text_column="other", init_from=str(tiny_run),
        output_dir=str(folder / "whole"), learning_rate=1e-3, train_batch_size=8, num_train_steps=5,
        save_checkpoints_steps=2, albert_dropout=0.0, classifier_dropout=0.0,
    )  # fmt: skip


def in_parts(settings, folder, parts=2):
    return dataclasses.replace(settings, output_dir=str(folder), gradient_accumulation_steps=parts)


def last(folder):
    return load_keras(folder / "last.keras", compile=True)


def figures(folder):
    rows = csv.DictReader((folder / "history.csv").read_text().splitlines())
    return [[float(row[name]) for name in ("step", "loss", "dev_mean_squared_error")] for row in rows]


@pytest.mark.slow
def test_parts_of_a_batch_make_the_update_of_the_whole(settings, tmp_path):
    one = finetuning.finetune(settings)
    several = finetuning.finetune(in_parts(settings, tmp_path / "run"))
    assert int(last(several).optimizer.iterations) == int(last(one).optimizer.iterations) == 5
    start = load_keras(f"{settings.init_from}/model.keras").encoder.get_weights()
    for a, b in zip(last(one).get_weights(), last(several).get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(last(one).encoder.get_weights(), start)) > 1e-3
    np.testing.assert_allclose(figures(one), figures(several), rtol=1e-4)


def test_parts_that_are_not_equal_are_refused(settings, tmp_path):
    with pytest.raises(UserError, match="--train_batch_size=8 is no multiple of --gradient_accumulation_steps=3"):
        finetuning.finetune(in_parts(settings, tmp_path / "run", 3))
    whole_file = dataclasses.replace(in_parts(settings, tmp_path / "run", 6), train_batch_size=24)
    with pytest.raises(UserError, match="16 rows make one batch, no multiple of --gradient_accumulation_steps=6"):
        finetuning.finetune(whole_file)
    with pytest.raises(UserError, match="--gradient_accumulation_steps=0 must be 1 or more"):
        in_parts(settings, tmp_path / "run", 0)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_dry_run_takes_the_same_number_of_parts(settings, tmp_path, capsys):
    finetuning.finetune(dataclasses.replace(in_parts(settings, tmp_path / "run", 8), dryrun=True))
    assert "everything worked" in capsys.readouterr().out
