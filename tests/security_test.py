"""What must not happen whatever is read or shown: a model's index names no file outside its folder,
no page runs a game's words.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt
from safetensors.numpy import save_file

from motif_jax.lm.weights import INDEX, Tensors
from tests import made_up_runs
from tests.made_up_runs import HOSTILE, run_data
from tests.processes import REPOSITORY


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_the_weights_of_a_model_lie_in_its_folder(name: str, tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "outside")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(FileNotFoundError, match="model/outside"):
        Tensors(tmp_path / "model")


class Page(HTMLParser):
    """What a browser would see of a page: its elements, its programs and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self.bold = self.data = ""
        self._inside: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._inside.append((tag, dict(attrs).get("type") == "application/json"))

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, is_json = self._inside[-1] if self._inside else ("", False)
        if tag == "script" and not is_json:
            self.scripts.append(data)
        self.bold += data if tag == "b" else ""
        self.data += data


@pytest.mark.slow
def test_pages_show_what_games_models_and_servers_say_as_text(tmp_path: Path) -> None:
    data = run_data(tmp_path)
    shown = made_up_runs.run_page(data, HOSTILE)
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", shown), "nothing is fetched"
    assert "default-src 'none'" in shown
    assert set(re.findall(r'href="#([^"]+)"', shown)) <= set(re.findall(r'\bid="([^"]+)"', shown))
    html = Page(shown)
    data.title = HOSTILE
    data.labels = {HOSTILE: {"first": 1}}
    table = made_up_runs.run_markdown(data)
    markdown = Page(MarkdownIt("commonmark").enable("table").render(table))
    assert markdown.scripts == []
    scripts = (REPOSITORY / "motif_jax/display/assets").glob("*.js")
    assets = {path.read_text(encoding="utf-8") for path in scripts}
    assert set(html.scripts) <= assets, "a program that is none of ours"
    assert html.handlers == []
    for page in (markdown, html):
        assert HOSTILE in page.data
        assert "bold" not in page.bold
