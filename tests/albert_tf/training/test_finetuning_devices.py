"""Fine-tuning over several devices, and under JAX: the same figures, and each shape compiled once."""

from pathlib import Path

import pytest

from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from tests.albert_tf.refusals import changed
from tests.albert_tf.training.test_devices import DEVICES, assert_same_run, finish, start, start_workers

HERE = Path(__file__).parent
JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
MEASURED = ("step", "loss", "learning_rate", "gradient_norm", "dev_mean_squared_error")
# Two devices; and programs that run a few times need not be fast.
XLA_FLAGS = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"


@pytest.fixture(scope="module")
def settings(tmp_path_factory, tiny_run):
    """No dropout, whose masks depend on the device; six dev rows are no multiple of a batch of four."""
    folder = tmp_path_factory.mktemp("numbers")
    lines = [f"{'a loop of statements and names ' * (n % 3)}it is {n % 7}\t{n % 5 / 2}\n" for n in range(14)]
    for split, part in (("train", lines[:8]), ("dev", lines[8:])):
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + "".join(part))
    flags = "--learning_rate=1e-3 --train_batch_size=4 --eval_batch_size=4 --num_train_steps=4"
    flags += " --save_checkpoints_steps=2 --albert_dropout=0 --classifier_dropout=0"
    one = FinetuningSettings(
        task="regression", data_dir=str(folder), output_dir=str(folder / "one"), init_from=str(tiny_run)
    )
    return changed(one, flags)


@pytest.fixture(scope="module")
def one_device(settings):
    return finetuning.finetune(settings)


@pytest.mark.slow
def test_two_mirrored_devices_in_parts_equal_one(settings, one_device, tmp_path):
    flags = f"--strategy=mirrored --gradient_accumulation_steps=2 --output_dir={tmp_path}/two"
    finish(start(changed(settings, flags), "-c", DEVICES + "from albert_tf.run_finetuning import run; run()"))
    assert_same_run(tmp_path / "two", one_device, MEASURED)


@pytest.mark.slow
def test_two_workers_equal_one(settings, one_device, tmp_path):
    settings = changed(settings, f"--output_dir={tmp_path}/two")
    chief, other = finish(*start_workers(settings, module="run_finetuning"))
    assert "Starting at step 0 of 4" in chief and "Starting" not in other
    assert_same_run(tmp_path / "two", one_device, MEASURED)
