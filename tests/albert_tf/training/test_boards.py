"""TensorBoard's files of a run that was killed behind its checkpoint and goes on."""

import collections

import pytest
import tensorflow as tf

from albert_tf.training.loop.report import TrainingReport
from albert_tf.training.loop.run_folder import History


def board_steps(folder):
    """How often the files have each step's loss."""
    steps = collections.Counter()
    for path in sorted((folder / "tensorboard").rglob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            steps[event.step] += sum(value.tag == "loss" for value in event.summary.value)
    return {step: count for step, count in steps.items() if step}


@pytest.fixture(params=[0, 7], ids=["whole", "cut off"])
def killed(tmp_path, request):
    """A folder with the steps 10, 20 and 30, of which a kill may have cut off the last."""
    for board in ("train", "validation"):
        with tf.summary.create_file_writer(str(tmp_path / "tensorboard" / board)).as_default():
            for step in (10, 20, 30):
                tf.summary.scalar("loss", 1.0, step)
    for path in (tmp_path / "tensorboard").rglob("*tfevents*"):
        path.write_bytes(path.read_bytes()[: -request.param or None])
    (tmp_path / "history.csv").write_text("step,seconds,loss,val_loss\n10,1,1.0,1.0\n20,1,1.0,1.0\n")
    return tmp_path


def test_each_step_is_there_once_after_a_kill(killed):
    report = TrainingReport(History(killed, 10), "training", 30, 10, boards=True)
    for step in (20, 30):
        report.row(step, {"loss": 1.0}, {"val_loss": 1.0}, 1.0)
    report.close()
    assert board_steps(killed) == {10: 2, 20: 2, 30: 2}
