"""XLNet on every kind of task: rows that end with [CLS]."""

import numpy as np
import pytest

from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training.finetuning import finetune
from tests.albert_tf.tiny import small
from tests.albert_tf.training.classes import write_classes, write_other_task
from tests.albert_tf.training.test_squad_and_ensemble import write_squad
from tests.albert_tf.training.trainers import DROPOUT
from tests.refusals import changed

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def settings(tmp_path_factory, tiny_run):
    """Of a tiny XLNet from scratch, one block for two layers, with the vocabulary of the tiny run."""
    folder = tmp_path_factory.mktemp("xlnet")
    write_classes(folder)
    config = small(vocab_size=500, max_position_embeddings=48, position_type="relative", type_vocab_size=4, **DROPOUT)
    config.to_json(folder / "xlnet.json")
    flags = f"--config={folder}/xlnet.json --tokenizer={tiny_run} --learning_rate=1e-3 --train_batch_size=8"
    flags += " --num_train_steps=1 --max_seq_length=32"
    begun = FinetuningSettings(task="classification", data_dir=str(folder), output_dir=str(folder / "run"), config="x")
    return changed(begun, flags)


@pytest.fixture(scope="module")
def finetuned(settings):
    return finetune(settings)


def test_rows_end_with_cls_and_have_one_answer_on_whichever_side_padding_is(finetuned):
    loaded = load(finetuned)
    assert loaded.tokenizer.cls_last
    features = loaded.preprocessor()(["a good value", "an expression returns"], ["bad", "it"])
    # As transformers pads: in front, segment 3.
    sizes = features["input_mask"].sum(axis=1)
    left = {name: np.array([np.roll(row, -n) for row, n in zip(value, sizes)]) for name, value in features.items()}
    left["segment_ids"] = np.where(left["input_mask"] == 1, left["segment_ids"], 3)
    assert left["input_mask"][:, 0].min() == 0 and left["input_mask"][:, -1].min() == 1
    np.testing.assert_allclose(loaded.model(left), loaded.model(features), atol=1e-5)


@pytest.mark.parametrize("task", ["tagging", "race", "regression", "squad1", "squad2"])
@pytest.mark.few(1)
def test_other_kinds_of_task(settings, tmp_path, task):
    if task.startswith("squad"):
        write_squad(tmp_path, {"squad1": "1.1", "squad2": "2.0"}[task])
    else:
        write_other_task(tmp_path, task)
    flags = f"--task={task} --data_dir={tmp_path} --output_dir={tmp_path}/run --train_batch_size=4"
    flags += " --second_text_column=other" * (task == "regression")
    assert load_task(finetune(changed(settings, flags)))["metrics"]
