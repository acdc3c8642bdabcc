"""Fine-tuning: weights and vocabularies that it starts from, and tasks of every kind, of ALBERT and of XLNet."""

import dataclasses

import numpy as np
import pytest

from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from albert_tf.training.preparation import prepare
from tests.albert_tf.tiny import small
from tests.albert_tf.training.classes import begun, write_classes, write_other_task
from tests.albert_tf.training.test_squad_and_ensemble import write_squad
from tests.albert_tf.training.trainers import DROPOUT
from tests.refusals import changed, refused

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def settings(class_settings, tmp_path):
    """One step on data in the test's folder."""
    places = {"data_dir": str(tmp_path), "output_dir": str(tmp_path / "run")}
    return dataclasses.replace(class_settings, num_train_steps=1, train_batch_size=4, **places)


@pytest.mark.parametrize(
    "name, flags, model, metric",
    [
        ("tagging", "--early_exit", "AlbertTokenClassifier", "f1"),
        ("race", "", "AlbertMultipleChoice", "high_accuracy"),
        ("regression", "--second_text_column=other --early_exit", "AlbertRegressor", "pearson"),
    ],
)
@pytest.mark.few(1)
def test_other_kinds_of_task(settings, tmp_path, name, flags, model, metric):
    write_other_task(tmp_path, name)
    folder = finetuning.finetune(changed(settings, f"--task={name} {flags}"))
    loaded, task = load(folder).model, load_task(folder)
    kind = {"race": "multiple_choice"}.get(name, name)
    assert type(loaded).__name__ == model and task["kind"] == kind and metric in task["metrics"]
    assert bool(getattr(loaded, "exit_heads", [])) == ("_exit" in flags)
    assert any((folder / "predictions").iterdir())


def test_a_configuration_beside_the_weights_says_dropouts_and_random_depths(class_settings, tmp_path):
    changes = {"random_depth_min": 1, "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
    own = load(class_settings.init_from).model.encoder.config
    own.replace(**changes).to_json(tmp_path / "changed.json")
    settings = dataclasses.replace(class_settings, config=str(tmp_path / "changed.json"), albert_dropout=-1)
    config = begun(settings).encoder.config
    assert {name: getattr(config, name) for name in changes} == changes
    assert begun(dataclasses.replace(settings, config="")).encoder.config.hidden_dropout_prob == 0
    own.replace(hidden_size=8).to_json(tmp_path / "changed.json")
    with refused(r"changed.json and the weights of .* disagree: hidden_size=8"):
        begun(settings)


def test_text_that_the_vocabulary_does_not_know_is_refused_unless_told(settings, class_settings, tmp_path):
    write_classes(tmp_path)
    for path in tmp_path.glob("*.tsv"):
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        path.write_text(
            "\n".join("\t".join(["我们喜欢这本书" if n else row[0], *row[1:]]) for n, row in enumerate(rows))
        )
    with refused(r"% of the training text's tokens are unknown to the tokenizer \(<unk>\)"):
        finetuning.finetune(settings)
    assert prepare(dataclasses.replace(settings, other_tokenizer=True)).unknown_share > 0.3
    assert prepare(class_settings).unknown_share < 0.05


@pytest.fixture(scope="module")
def xlnet_settings(tmp_path_factory, tiny_run):
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
def finetuned_xlnet(xlnet_settings):
    return finetuning.finetune(xlnet_settings)


def test_rows_end_with_cls_and_have_one_answer_on_whichever_side_padding_is(finetuned_xlnet):
    loaded = load(finetuned_xlnet)
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
def test_other_kinds_of_task_with_xlnet(xlnet_settings, tmp_path, task):
    if task.startswith("squad"):
        write_squad(tmp_path, {"squad1": "1.1", "squad2": "2.0"}[task])
    else:
        write_other_task(tmp_path, task)
    flags = f"--task={task} --data_dir={tmp_path} --output_dir={tmp_path}/run --train_batch_size=4"
    flags += " --second_text_column=other" * (task == "regression")
    assert load_task(finetuning.finetune(changed(xlnet_settings, flags)))["metrics"]
