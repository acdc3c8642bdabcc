"""The page to try models on, read as a browser would: one file, nothing from elsewhere, everything labelled."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from serving.client.tasks import FINDERS
from serving.gateway.routes.table import ROUTES


class Elements(HTMLParser):
    """All start tags with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def all(self, *tags):
        return [attributes for tag, attributes in self.found if tag in tags]


@pytest.fixture(scope="module")
def page(shared_gateway):
    return shared_gateway("pretrainer").http.get("/")


@pytest.fixture(scope="module")
def elements(page):
    return Elements(page.text)


def test_it_loads_nothing(page, elements):
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert [one for one in elements.all("script", "img", "iframe") if "src" in one] == []
    assert {one["href"] for one in elements.all("link", "a")} == {"data:,", "openapi.json"}
    assert not re.search(r"https?:|url\(|@import|\beval\b|innerHTML", page.text)


def test_the_browser_holds_it_to_that(page):
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_everything_has_a_name(elements):
    labelled = {one.get("for") for one in elements.all("label")}
    fields = elements.all("input", "textarea", "select")
    assert len(fields) == 6 and {one["id"] for one in fields} == labelled
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {one["aria-describedby"] for one in fields if "aria-describedby" in one} <= set(ids)
    assert elements.all("html")[0]["lang"] == "en" and elements.all("title") and len(elements.all("main")) == 1
    assert any(one.get("role") == "status" for one in elements.all("p"))
    assert not [attributes for _, attributes in elements.found if int(attributes.get("tabindex") or 0) > 0]


def test_it_shows_all_that_models_can(page):
    tasks = re.search(r"const TASKS = \{\n(.*?)\n\};", page.text, re.DOTALL)[1]
    shown = dict(re.findall(r"^  (\w+): \{\n    title: [^\n]*?route: \"(\w+)\"", tasks, re.MULTILINE))
    routes = {route.path.strip("/"): route.task for route in ROUTES}
    # Vectors of tokens and texts of ids are for programs.
    assert set(shown) == set(FINDERS) - {"embed_all"} and all(routes[route] == task for task, route in shown.items())
