"""Fine-tuning with a batch in parts: what is refused. The runs themselves are in test_parts.py and test_resume.py."""

import dataclasses

import pytest

from albert_tf.training import finetuning
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")


def test_parts_that_are_not_equal_are_refused(run_settings, tmp_path):
    def in_parts(parts, size):
        changes = {"gradient_accumulation_steps": parts, "train_batch_size": size, "output_dir": str(tmp_path / "run")}
        return dataclasses.replace(run_settings("fine-tuning"), **changes)

    with pytest.raises(UserError, match="--train_batch_size=8 is no multiple of --gradient_accumulation_steps=3"):
        finetuning.finetune(in_parts(3, 8))
    with pytest.raises(UserError, match="32 rows make one batch, no multiple of --gradient_accumulation_steps=6"):
        finetuning.finetune(in_parts(6, 36))
    with pytest.raises(UserError, match="--gradient_accumulation_steps=0 must be 1 or more"):
        in_parts(0, 8)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_dry_run_takes_the_same_number_of_parts(run_settings, tmp_path, capsys):
    settings = dataclasses.replace(run_settings("parts of fine-tuning"), output_dir=str(tmp_path / "run"))
    finetuning.finetune(dataclasses.replace(settings, dryrun=True))
    assert "everything worked" in capsys.readouterr().out
