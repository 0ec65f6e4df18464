"""`collect --config.look=True`: what its page says of a game that is known."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.commands import commands
from tests.processes import REPOSITORY

FLAGS = (
    "--config.environment.name=gym:ToyBell-v0",
    "--config.environment.modules=tests.gym_toys",
    "--config.environment.text=info:said",
    "--config.look=True",
)


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The work folders of looks at a game that its seed determines, and at one that it does not."""
    folder = tmp_path_factory.mktemp("looks")
    config = f"--config={REPOSITORY}/configs/collect.py"
    with commands(REPOSITORY, PYTHONPATH=str(REPOSITORY)) as shell:
        for name, kwargs in (("seeded", "{}"), ("drifting", '{"drift": true}')):
            options = (
                *FLAGS,
                f"--config.environment.kwargs={kwargs}",
                f"--workdir={folder / name}",
            )
            done = shell.launch(folder, config, *options)
            assert done.returncode == 0, done.stderr
    return {name: folder / name for name in ("seeded", "drifting")}


def rows(folder: Path, table: str) -> list[list[str]]:
    """The cells of a table of the page."""
    page = (folder / "look.html").read_text()
    match = re.search(f'<table id="{table}".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert match is not None
    cells = re.findall("<td.*?>(.*?)</td>", match[1])
    width = len(re.findall("<td", match[1].split("</tr>")[0]))
    texts = [html.unescape(re.sub("<[^>]+>", " ", cell)).strip() for cell in cells]
    return [texts[start : start + width] for start in range(0, len(texts), width)]


def test_a_look_leaves_nothing_but_its_page(looks: dict[str, Path]) -> None:
    assert [path.name for path in looks["seeded"].iterdir()] == ["look.html"]


def test_a_look_says_whether_a_seed_determines_a_game(looks: dict[str, Path]) -> None:
    assert "cannot be played again" not in (looks["seeded"] / "look.html").read_text()
    assert "cannot be played again" in (looks["drifting"] / "look.html").read_text()


def test_a_look_has_the_shares_of_captions(looks: dict[str, Path]) -> None:
    texts = {row[0]: row[1:3] for row in rows(looks["seeded"], "texts")}

    assert texts == {"(no message)": ["90", "100"], "The bell rings.": ["10", "100"]}


def test_a_look_advises_the_start_share_of_the_fewest_games(looks: dict[str, Path]) -> None:
    draws = rows(looks["seeded"], "draws")
    (balanced,) = (row for row in draws if "balances" in row[0])
    by_messages = {float(row[1]): float(row[2]) for row in draws if "messages" in row[0]}

    # A game shows ten texts, of which a tenth is one: rung and silence are as likely.
    assert float(balanced[1]) == 0.1
    assert by_messages[0.1] == pytest.approx(50, abs=5)
    assert by_messages[1.0] == 90


def test_a_look_names_measures_and_the_success(looks: dict[str, Path]) -> None:
    measures = {row[0]: row[1] for row in rows(looks["seeded"], "measures")}

    assert measures["success"] == "yes"
    assert measures["info_length"] == ""
    assert "is_success" not in measures


def test_a_look_takes_no_success_that_falls_within_a_game(looks: dict[str, Path]) -> None:
    measures = {row[0]: row[1] for row in rows(looks["drifting"], "measures")}

    assert measures["info_success"] == ""
    assert "success" not in measures


def test_a_look_shows_what_the_agent_observes(looks: dict[str, Path]) -> None:
    fields = {row[0]: row[1:3] for row in rows(looks["seeded"], "fields")}

    assert fields["observation"] == ["float32 [2]", "numbers"]
    assert set(fields) == {"observation", "caption", "caption_count"}
    assert "4 actions" in (looks["seeded"] / "look.html").read_text()
