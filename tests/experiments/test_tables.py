"""Settings files say what the library can do, and what they cannot mean is met by name."""

import dataclasses
import json
import shutil

import pytest

from experiments.tables import Recipe, Row, Scale, Table, names
from tfrecords.base.errors import UserError

CELLS = [(table, scale) for table in names("table") for scale in names("scale")]


@pytest.mark.parametrize(("table", "scale"), CELLS)
def test_every_row_is_one_that_the_library_can_train_and_fine_tune(table, scale):
    table = Table.read(table)
    scaled = table.scaled(Scale.read(scale))
    recipes = [row.recipe(scaled) for row in table.rows]
    assert len({recipe.key for recipe in recipes}) == len(recipes), "two rows ask for the same runs"
    for recipe in recipes:
        config, data = recipe.albert_config(), recipe.build_settings()
        assert config.vocab_size == scaled.vocabulary["vocab_size"] and data.held_out_fraction > 0
        assert max(data.max_seq_length, scaled.inference_length) <= config.max_position_embeddings
    settings = scaled.finetuning_settings(task="sst2", data_dir="data", output_dir="out", init_from="run", seed=1)
    assert settings.init_from == "run" and bool(settings.num_train_steps) != bool(settings.num_train_epochs)


def test_a_rate_of_muon_is_not_scaled_as_that_of_lamb(tmp_path):
    """Of the budget recipe; the scale's own rate is LAMB's for a batch of 4096."""
    table = Table.read("budget")
    recipe = table.rows[0].recipe(table.scaled(Scale.read("gpu")))
    settings = recipe.training_settings(tmp_path, tmp_path, tmp_path / "config.json", 1)
    assert settings.optimizer == "muon" and settings.peak_learning_rate == settings.learning_rate == 0.005


def test_no_settings_file_is_forgotten():
    for name in names("table"):
        rows = {row.name for row in Table.read(name).rows}
        paths = (Table.read.__globals__["FOLDER"] / "tables" / name).glob("*.json")
        assert {path.stem for path in paths} == rows | {"table"}


def test_rows_of_two_tables_that_ask_for_the_same_share_their_runs():
    data_size, dropout = Table.read("data_size"), Table.read("dropout")
    (everything, *_), (without, _), small = data_size.rows, dropout.rows, Scale.read("small")
    assert everything.recipe(data_size.scaled(small)).key == without.recipe(dropout.scaled(small)).key


def test_a_table_changes_the_scale_of_all_its_rows_and_of_no_other_scale(settings_folder):
    table, tiny = Table.read("pair", settings_folder), Scale.read("tiny", settings_folder)
    table = dataclasses.replace(table, at={"tiny": {"training": {"learning_rate": 0.5}}})
    plain, wide = (row.recipe(table.scaled(tiny)) for row in table.rows)
    assert (plain.training["learning_rate"], wide.training["learning_rate"]) == (0.5, 0.02)
    assert plain.training["num_train_steps"] == tiny.training["num_train_steps"]
    words = dataclasses.replace(table, at={"tiny": {"vocabulary": {"vocab_size": 700}}})
    assert words.rows[0].recipe(words.scaled(tiny)).albert_config().vocab_size == 700
    tuned = dataclasses.replace(table, at={"tiny": {"finetuning": {"learning_rate": 0.5}}}).scaled(tiny)
    assert tuned.finetuning == tiny.finetuning | {"learning_rate": 0.5} and tuned.training == tiny.training
    assert table.scaled(dataclasses.replace(tiny, name="small")).training == tiny.training
    wrong = dataclasses.replace(table, at={"tiny": {"vocabulary": {"vocabsize": 700}}})
    with pytest.raises(UserError, match="vocabulary: unknown setting 'vocabsize'; did you mean 'vocab_size'"):
        wrong.rows[0].recipe(wrong.scaled(tiny))


def test_a_row_changes_its_scale_and_one_scale_more(settings_folder):
    scale = Scale.read("tiny", settings_folder)
    plain, wide = (row.recipe(scale) for row in Table.read("pair", settings_folder).rows)
    assert (plain.albert_config().intermediate_size, wide.config["intermediate_size"]) == (16, 24)
    assert (plain.training["learning_rate"], wide.training["learning_rate"]) == (0.01, 0.02)
    assert plain.part_key("data") == wide.part_key("data") and plain.key != wide.key


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("config", {"hiden_size": 8}, "unknown configuration key 'hiden_size'; did you mean 'hidden_size'"),
        ("data", {"max_seq_len": 8}, "data: unknown setting 'max_seq_len'; did you mean 'max_seq_length'"),
        ("training", {"optimiser": "lamb"}, "training: unknown setting 'optimiser'; did you mean 'optimizer'"),
        ("training", {"optimizer": "sgd"}, "--optimizer=sgd is unknown"),
        ("training", {"seed": 3}, "training setting 'seed' is given by the runner"),
    ],
)
def test_a_wrong_value_is_named(settings_folder, part, values, message):
    row = Row(name="wrong", title="wrong", **{part: values})
    with pytest.raises(UserError, match=message):
        row.recipe(Scale.read("tiny", settings_folder))


def comparing(**others):
    """A change of a table's comparisons."""
    return {"comparisons": [{"row": "wide", "against": "plain"} | others]}


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("table.json", {"row": ["plain"]}, "unknown setting 'row'; did you mean 'rows'"),
        ("table.json", comparing(against="bert"), "compares 'bert', which is none"),
        ("table.json", comparing(published="up"), "'up' is none of"),
        ("table.json", {"columns": ["loss", "taste"]}, "'taste' is no column; choose of parameters, loss"),
        ("table.json", comparing(by="size"), "'size' is no column"),
        ("table.json", {"rows": ["plain", "tall"]}, "cannot read '.*tall.json'"),
        ("table.json", {"at": {"tini": {"training": {}}}}, "'tini' is no scale; choose of tiny"),
        ("wide.json", {"at": {"tini": {"training": {}}}}, "'tini' is no scale"),
        ("table.json", comparing(row=[]), "a side without rows"),
        ("wide.json", {"at": {"tiny": {"model": {}}}}, "'model' is none of data, config, training"),
        (
            "table.json",
            {"at": {"tiny": {"model": {}}}},
            "'model' is none of vocabulary, data, config, training, finetuning",
        ),
    ],
)
def test_a_wrong_file_is_named(settings_folder, tmp_path, file, change, message):
    shutil.copytree(settings_folder, tmp_path / "copy")
    path = tmp_path / "copy" / "tables" / "pair" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        Table.read("pair", tmp_path / "copy")


def test_what_is_not_there_is_listed():
    with pytest.raises(UserError, match=r"there is no table 'dept'; choose one of .*depth, .*, xlnet"):
        Table.read("dept")
    with pytest.raises(UserError, match="there is no scale 'large'; choose one of gpu, small, tiny"):
        Scale.read("large")


def test_a_recipe_is_named_by_what_decides_it():
    scale = Scale.read("tiny")
    recipe = Row(name="a", title="A").recipe(scale)
    assert recipe == Row(name="b", title="B").recipe(scale)
    assert recipe.key == Recipe(*(dict(reversed(list(part.items()))) for part in vars(recipe).values())).key
