"""The live view in the lines that a terminal has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from rich.console import Console, Group
from rich.style import Style

from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer
from motif_jax.play import terminal, watching
from motif_jax.play.messages import MessageTally, as_text
from tests.made_up_films import MadeUpPolicy, MadeUpRater


@pytest.fixture(scope="module")
def sight() -> Iterator[watching.WatchedStep]:
    options = watching.with_screen("NetHackScore-v1", {"max_episode_steps": 5})
    environment = registry.make("NetHackScore-v1", **options)
    chooser = watching.policy_actions(MadeUpPolicy(), 3, environment.spec)
    yield next(watching.watch(EpisodePlayer(environment), 3, chooser, MadeUpRater()))
    environment.close()


def view(sight: watching.WatchedStep, height: int, name: str = "wait") -> Group:
    return terminal.view(
        sight, terminal.RewardTotals(), lambda _: name, "title", "paused", "KEYS", height
    )


def lines(group: Group) -> list[str]:
    console = Console(width=80, height=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(group)
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize("height", [24, 25, 30, 38])
def test_a_view_fits_the_terminal(sight, height):
    shown = lines(view(sight, height))

    assert len(shown) <= height
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize("height", [24, 38])
def test_the_cursor_stands_on_the_hero(sight, height):
    group = view(sight, height)

    screen = next(part for part in group.renderables if "Dlvl:1" in str(part))
    reversed_spans = [span for span in screen.spans if span.style == Style(reverse=True)]
    assert [screen.plain[span.start : span.end] for span in reversed_spans] == ["@"]


def test_a_high_terminal_shows_numbers_and_probabilities(sight):
    shown = "\n".join(lines(view(sight, 38)))

    for title in (
        "title",
        "return",
        "intrinsic ret",
        "message reward",
        "message seen",
        "next action",
    ):
        assert title in shown
    assert "KEYS" in shown


def test_a_low_terminal_shows_the_numbers_in_one_line(sight):
    *_, facts = [line for line in lines(view(sight, 24)) if line.strip()]

    assert "step 0" in facts
    assert "paused" in facts


def test_names_of_actions_are_neither_markup_nor_escape_sequences(sight):
    shown = "\n".join(lines(view(sight, 38, "[/a]\x1b[2J")))

    assert "[/a]" in shown
    assert "\x1b" not in shown


@pytest.fixture
def tallies():
    sums = (("b", 2, -0.5), ("a", 2, 2.0), ("c", 9, 0.0), (as_text(b"a wall\na key\x1b"), 1, 0.25))
    return [MessageTally(text, count, 1, 1.0, total) for text, count, total in sums]


def column_of_texts(table) -> list[str]:
    return [str(cell) for cell in table.columns[0].cells]


def test_messages_are_listed_by_count_and_by_what_they_paid(tallies):
    frequent, paid = terminal.message_tables(tallies, "episode 0", 100)

    assert column_of_texts(frequent)[:3] == ["c", "a", "b"], (
        "equal counts in the order of their texts"
    )
    assert column_of_texts(paid)[0] == "a"
    assert column_of_texts(paid)[-1] == "b"
    assert "c" not in column_of_texts(paid), "it paid nothing"


def test_only_the_first_messages_are_listed(tallies):
    frequent, paid = terminal.message_tables(tallies, "episode 0", 2)

    assert len(column_of_texts(frequent)) == 2
    assert len(column_of_texts(paid)) == 2


def test_a_message_of_two_lines_is_one_row(tallies):
    shown = "\n".join(lines(Group(*terminal.message_tables(tallies, "episode 0", 100))))

    assert "a wall a key" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(("paid", "style"), [(0.0, ""), (0.5, "bold green")])
def test_a_text_that_is_paid_is_green(sight, paid, style):
    message = as_text(sight.text)

    group = view(dataclasses.replace(sight, intrinsic=paid), 38)

    assert message
    assert [part.style for part in group.renderables if str(part) == message] == [style]


def test_a_bar_begins_midway_and_ends_at_its_range() -> None:
    drawn = [terminal.bar(value, width=8).plain for value in (0, 2, -2, 9, -9)]
    assert drawn == ["    |    ", "    |██  ", "  ██|    ", "    |████", "████|    "]
