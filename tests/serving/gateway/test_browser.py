"""The page in a real browser: Chromium, driven by the keyboard, over exports of this library."""

import shutil

import pytest
import yaml

from tests.servers import free_port
from tests.serving.gateway.conftest import wait_until_healthy
from tests.serving.model_server.conftest import start_models

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
pytestmark = pytest.mark.slow("browser")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Head, task, and the sections of its answer.
MODELS = yaml.safe_load("""
pretrainer: [pretrainer, null, [Masked words, Similarity, Sparse vector, Tokens]]
sst2: [classifier, {inputs: [text], labels: [dull, fine, odd]}, [Classes, Tokens]]
pairs: [regressor, {inputs: [first, second]}, [Classes, Reranked sentences, Tokens]]
squad: [spans, null, [Answer, Tokens]]
words: [token classifier, {labels: [O, PLACE, PERSON, DATE]}, [Tagged words, Tokens]]
choice: [multiple choice, null, [Tokens]]
""")
SECTIONS = {name: sections for name, (*_, sections) in MODELS.items()}


@pytest.fixture(scope="module")
def url(export_model, tmp_path_factory):
    """The gateway of a server with every kind of model."""
    bases = {
        name: export_model(head, task, inputs="text", warm_up_lengths="").parent
        for name, (head, task, _) in MODELS.items()
    }
    server = start_models(tmp_path_factory.mktemp("config"), bases, gateway_port=free_port())
    url = f"http://127.0.0.1:{server.options.gateway_port}"
    wait_until_healthy(url)
    yield url
    server.stop()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, url):
    """open_page(**options of a context): the page, whose errors and requests elsewhere fail the test."""
    contexts, errors = [], []

    def make(info=None, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if "Security" in said.text else None)
        page.on("request", lambda one: errors.append(one.url) if not one.url.startswith((url, "data:")) else None)
        if info is not None:
            page.route("**/info", lambda route: route.fulfill(json=info))
        page.goto(url)
        playwright.expect(page.locator("#about")).to_contain_text("version", timeout=30_000)
        return page

    yield make
    for context in contexts:
        context.close()
    assert errors == []


def answered(page):
    playwright.expect(page.get_by_role("status")).to_contain_text("answered by", timeout=60_000)


def test_by_keyboard_alone(open_page):
    page = open_page()
    page.keyboard.press("Tab")  # The link to the API.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "model"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.press("Control+A")
    page.keyboard.type("the [MASK] sat on the [MASK]")
    page.keyboard.press("Control+Enter")
    answered(page)
    assert page.evaluate("document.activeElement.id") == "text"
    assert page.locator("#results h3").all_text_contents() == ["Mask 1", "Mask 2"]
    assert page.get_by_role("status").text_content() == "4 of 4 tasks answered by pretrainer, version 1."
    # On to the button, and once more with that.
    while page.evaluate("document.activeElement.id") != "ask":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#ask[aria-disabled]")).to_have_count(0, timeout=60_000)
    answered(page)


@pytest.mark.parametrize("model", SECTIONS)
def test_every_model_is_asked_what_it_can(open_page, model):
    page = open_page()
    page.get_by_label("Model", exact=True).select_option(model)
    page.get_by_role("button", name="Run").click()
    answered(page)
    assert page.locator("#results h2").all_text_contents() == [*SECTIONS[model], "Time in milliseconds"]
    assert page.locator("#results .alarm").count() == 0
    assert page.get_by_role("region").count() >= len(SECTIONS[model])
    for heading in page.locator("#results table tbody td:not([aria-hidden])").all_text_contents():
        assert float(heading) >= 0


@pytest.mark.parametrize("route", ["info", "tokenize"])
def test_answers_are_those_of_the_model_that_was_asked(open_page, route):
    """Although another model is chosen, and another text written, while they are waited for."""
    page, held, bodies = open_page(), [], []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    page.locator("#text").fill("the cat sat on the [MASK]")
    page.route(f"**/{route}", lambda one: held.append(one), times=1)
    page.get_by_role("button", name="Run").click()
    while not held:
        page.wait_for_timeout(20)
    page.get_by_label("Model", exact=True).select_option("sst2")
    page.locator("#text").fill("another text")
    held[0].continue_()
    answered(page)
    assert page.locator("#results h2").all_text_contents() == [*SECTIONS["pretrainer"], "Time in milliseconds"]
    assert page.locator("#results .alarm").count() == 0
    assert page.get_by_role("status").text_content() == "4 of 4 tasks answered by pretrainer, version 1."
    assert {body["model"] for body in bodies} == {"pretrainer"} and "another text" not in str(bodies)
    # The form shows what is chosen now.
    assert page.locator("#about").text_content().startswith("sst2, version 1")
    assert page.get_by_label("Model", exact=True).input_value() == "sst2"


def test_what_is_refused_is_said_where_it_was_asked(open_page):
    page = open_page()
    page.route("**/fill_mask", lambda route: route.fulfill(status=429, json={"error": "too much"}))
    page.get_by_role("button", name="Run").click()
    answered(page)
    assert page.locator("#results .alarm").all_text_contents() == ["too much"]
    assert "3 of 4" in page.get_by_role("status").text_content()
