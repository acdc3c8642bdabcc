"""Fine-tuning: weights and vocabularies that it starts from, and tasks of every kind."""

import dataclasses

import pytest

from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.training import finetuning
from albert_tf.training.preparation import prepare
from tests.albert_tf.training.classes import begun, write_classes, write_other_task
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
