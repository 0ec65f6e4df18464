"""Links of pages to other files."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from motif_jax.reports import html


@pytest.mark.parametrize("folder", ["a#1", "what?", "50%41", "lr:1e-4", "a&b<\"c'>", "é ü", "plain"])
def test_a_link_leads_to_its_file_whatever_the_folder_is_called(folder: str) -> None:
    found: list[str | None] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            found.append(dict(attributes)["href"])

    Reader().feed(html.link(f"{folder}/report.html", "a <page>"))
    page = "file:///runs/page.html"
    assert unquote(urlsplit(urljoin(page, found[0])).path) == f"/runs/{folder}/report.html"
    assert html.link("a", "<b>") == '<a href="a">&lt;b&gt;</a>'
