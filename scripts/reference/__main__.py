"""Writes the generated pages of docs/reference: `python -m scripts.reference`.

Run it when a flag, a docstring, a field, a route or a metric changes. A test compares the pages with the sources.
"""

from scripts import clients_page, folders_page
from scripts.reference import pages

if __name__ == "__main__":
    for page, text in pages().items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    for module in (clients_page, folders_page):
        module.PAGE.write_text(module.page(), encoding="utf-8")
    print("wrote docs/reference")
