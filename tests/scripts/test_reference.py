"""The generated pages of docs/reference are those of the sources."""

import pytest

from scripts.reference import FOLDER, commands, environment, pages
from scripts.reference.api import FACE, public_names


@pytest.fixture(scope="module")
def written():
    return pages()


def test_the_pages_are_those_of_the_sources(written):
    stale = [str(path.relative_to(FOLDER)) for path, text in written.items() if _text(path) != text]
    assert stale == [], "run: python -m scripts.reference"
    folders = {path.parent for path in written} - {FOLDER}
    assert {path for folder in folders for path in folder.glob("*.md")} <= set(written), "a page of no source"


def _text(path):
    return path.read_text("utf-8") if path.is_file() else None


def test_every_public_name_and_flag_is_described(written):
    for package in FACE:
        page = written[FOLDER / "api" / f"{package.replace('.', '_')}.md"]
        assert all(f"## {name}\n" in page.replace("`", "") for name in public_names(package))
    assert " |  |\n" not in written[FOLDER / "api.md"].replace("| name |  |\n", ""), "a name has no docstring"
    page = written[FOLDER / "commands/pretrain.md"]
    assert "| `--learning_rate` | `0.00176` | number at least 0 | Peak of the learning-rate curve. |" in page
    assert page.index("## Required") < page.index("`--train_data` | must be given") < page.index("## Data")
    assert page.index("## Data") < page.index("## More flags") < page.index("`--poly_power`")
    assert "x CPU cores" in written[FOLDER / "commands/serve.md"]
    assert commands.group_of("no_such_flag") == "Input and output"


def test_every_variable_that_the_packages_read_is_listed(monkeypatch):
    assert environment.unknown_variables() == set(), "name it in scripts/reference/environment.py"
    monkeypatch.delitem(environment.VARIABLES, "RAY_ADDRESS")
    assert environment.unknown_variables() == {"RAY_ADDRESS"}


def test_the_table_of_tasks_has_the_defaults_of_the_code():
    from albert_tf.tasks import own_data, pairs
    from albert_tf.tasks.registry import TASKS
    from albert_tf.tasks.settings import FinetuningSettings

    lines = (FOLDER / "tasks.md").read_text("utf-8").splitlines()
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[4:9]] for line in lines if "|" in line
    }
    for name, make in TASKS.items():
        given = FinetuningSettings(task=name, data_dir=".", output_dir="o", config="albert_tiny", label_column="label")
        fixed = {"3 epochs": own_data.DEFAULTS, "1 epoch": pairs.DEFAULTS}
        defaults = fixed.get(rows[name][2]) or make(given).defaults
        rate, batch, steps, warmup, dropout = rows[name]
        assert (float(rate), int(batch)) == (defaults.learning_rate, defaults.train_batch_size), name
        assert steps == f"{defaults.num_train_steps or f'{defaults.num_train_epochs:g} epochs'}".replace(
            "1 epochs", "1 epoch"
        ), name
        assert warmup == (str(defaults.num_warmup_steps) if defaults.num_warmup_steps else "a tenth"), name
        assert float(dropout) == defaults.albert_dropout, name
