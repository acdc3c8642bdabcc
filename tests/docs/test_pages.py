"""The pages of the documentation are short, lead somewhere, and show commands and snippets that work."""

import functools
import importlib.util
import os
import re
import subprocess
import sys

import pytest

from albert_tf import AlbertConfig
from tests.docs.example_files import MINILM, NARROW, write_models
from tests.docs.pages import EXPLANATION, GUIDES, PAGES, ROOT, WITH_COMMANDS, blocks, commands, is_broken, links

README_WORDS = 700
GUIDE_WORDS = 900
EXPLANATION_WORDS = 800
# Of guides and explanation together.
ALL_WORDS = 22_000
RESULT_PAGES, RESULT_WORDS, REFERENCE_WORDS = 12, 10_000, 9_000


def test_no_link_is_broken():
    assert [(page.name, link) for page in PAGES for link in links(page) if is_broken(page, link)] == []


def test_pages_are_short():
    limits = {ROOT / "README.md": README_WORDS} | dict.fromkeys(GUIDES, GUIDE_WORDS)
    limits |= dict.fromkeys(EXPLANATION, EXPLANATION_WORDS)
    counts = {page: len(page.read_text("utf-8").split()) for page in PAGES}
    assert {page.name: n for page, n in counts.items() if n > limits.get(page, n)} == {}
    assert sum(counts[page] for page in GUIDES + EXPLANATION) <= ALL_WORDS
    results, reference = (
        [n for page, n in counts.items() if page.parent.name == name] for name in ("results", "reference")
    )
    assert len(results) <= RESULT_PAGES and sum(results) <= RESULT_WORDS and sum(reference) <= REFERENCE_WORDS


def test_the_page_on_security_names_tests_that_exist():
    text = (ROOT / "docs" / "explanation" / "security.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) > 20 and [row for row in rows if "`tests/" not in row] == []
    tests = [test.split("::") for test in re.findall(r"`(tests/[^`]+)`", text)]
    texts = {file: (ROOT / file).read_text("utf-8") for file, *_ in tests}
    assert [test for test in tests for name in test[1:] if f" {name}" not in texts[test[0]]] == []


def test_every_guide_begins_with_what_can_be_run_and_is_in_the_site():
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    for guide in GUIDES:
        (first, *_) = blocks(guide)
        text = guide.read_text("utf-8").split(f"```{first.language}")[0]
        assert first.language in ("bash", "python") and len(text.split()) < 100, guide.name
        assert f"guide/{guide.name}" in site


@pytest.fixture(scope="module")
def flags_of(run_module):
    """flags_of(module): the values that each flag of a command may have; None for any."""

    @functools.cache
    def found(module):
        shown = run_module(module, "--helpfull", without_tensorflow=True)
        flags = re.findall(r"^  --(?:\[no\])?(\w+)(?:=(\S+))?", shown.stdout, re.MULTILINE)
        assert flags, (module, shown.stderr)
        return {name: set(values.split("|")) if "|" in values else None for name, values in flags}

    return found


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_have_the_flags_that_pages_give_them(page, flags_of):
    shell = "\n".join(block.text for block in blocks(page) if block.language == "bash")
    inline = re.findall(r"`(python -m [^`]+)`", page.read_text("utf-8"))
    for module, arguments in commands("\n".join([shell, *inline])):
        if module.startswith(("pip", "json", "pytest")):
            continue
        if module.split(".")[0] not in ("tfrecords", "albert_tf", "serving"):
            assert importlib.util.find_spec(module), (page.name, module)
            continue
        for argument in arguments:
            name, _, value = argument.removeprefix("--").partition("=")
            if not argument.startswith("--") or name in ("help", "helpfull", "settings", "version"):
                continue
            flags = flags_of(module)
            name = name if name in flags else name.removeprefix("no")
            assert name in flags, (page.name, module, argument)
            assert flags[name] is None or value in flags[name], (page.name, module, argument)


def test_the_extension_that_the_guide_adds_is_the_librarys_own():
    (code, *_) = [block.text for block in blocks(ROOT / "docs/guide/extensions.md") if block.language == "python"]
    assert code in (ROOT / "albert_tf/extensions/step_signal.py").read_text("utf-8")


SNIPPETS = [(page, block) for page in WITH_COMMANDS for block in blocks(page) if block.language == "python"]
# What asks a server runs with the guide's commands, in the slow tests; so does what builds large models.
ELSEWHERE = re.compile(
    r"Client\b|OpenAI\(|LiteModel\(|load\(\"tickets\"\)|named\(\"albert_(base|xlnet)|roberta-base|distil\b|share_blocks"
)


@pytest.fixture(scope="module")
def place(made_once):
    return made_once("models_of_the_guides", write_models)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "page",
    [
        # Notebooks train for their page, and run whole in a slow group of their own.
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem == "notebooks"))
        for page in sorted({page for page, _ in SNIPPETS})
    ],
)
def test_snippets_run(page, place, tmp_path, monkeypatch):
    """All of a page one after the other, as a notebook runs its cells."""
    (tmp_path / MINILM).parent.mkdir()
    (tmp_path / MINILM).symlink_to(place / MINILM)
    monkeypatch.chdir(tmp_path)
    small, named = NARROW | {"num_hidden_layers": 2}, AlbertConfig.named
    monkeypatch.setattr(AlbertConfig, "named", lambda name: named(name).replace(**small))
    names = {"__name__": "__main__"}
    for _, block in (one for one in SNIPPETS if one[0] == page):
        if page.name != "extensions.md" and not ELSEWHERE.search(block.text):
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


def test_the_site_can_be_built(tmp_path):
    """Where MkDocs is installed, here or in the environment that DOCS_PYTHON names."""
    python = os.environ.get("DOCS_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import material, mkdocstrings"], capture_output=True).returncode:
        pytest.skip(f"{python} lacks packages of requirements/docs.txt")
    command = [python, "-m", "mkdocs", "build", "--strict", "--quiet", f"--site-dir={tmp_path / 'site'}"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "site" / "search" / "search_index.json").is_file()
    text = "".join(page.read_text("utf-8") for page in (tmp_path / "site").rglob("*.html"))
    loaded = re.findall(
        r'<(?:script[^>]* src|link[^>]* rel="stylesheet"[^>]* href|img[^>]* src)="(https?:[^"]+)"', text
    )
    assert loaded == [], "the site loads nothing from elsewhere"
