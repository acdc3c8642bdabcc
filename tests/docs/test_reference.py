"""Pages of the reference that nobody generates name what the code has, and nothing else."""

import re

from serving.gateway.pages import PAGES
from serving.gateway.routes.table import ROUTES
from serving.gateway.service import Metrics
from serving.model_server import telemetry
from tests.docs.pages import DOCS, ROOT

# Of our own processes for one another.
INNER = {"PYTHONPATH", "TOKENIZERS_PARALLELISM", "ALBERT_TF_CPUINFO"}


def first_cells(page):
    text = (DOCS / "reference" / page).read_text("utf-8")
    return set(re.findall(r"(?m)^\| `([^`]+)` \|", text))


def test_routes():
    text = (DOCS / "reference" / "gateway.md").read_text("utf-8").split("## Routes")[1].split("## ")[0]
    posts, gets = text.split("| GET |")
    assert set(re.findall(r"`(/[^`]*)`", posts.split("| POST |")[1])) == {route.path for route in ROUTES}
    assert set(re.findall(r"(?m)^\| `(/[^`]*)`", gets)) == {page.path for page in PAGES} - {"/v1/models/{name:path}"}


def test_metrics():
    own = {family.name + "_total" * (family.type == "counter") for family in Metrics().registry.collect()}
    assert first_cells("metrics.md") == own | {path.replace("/", ":") for path in telemetry.METRICS}


def test_variables_of_the_environment():
    files = [path for name in ("tfrecords", "albert_tf", "serving") for path in (ROOT / name).rglob("*.py")]
    texts = "".join(path.read_text("utf-8") for path in files)
    read = set(re.findall(r"""environ(?:\.get\(|\.setdefault\(|\[)["'](\w+)["']""", texts))
    assert read - INNER - first_cells("environment.md") == set()
