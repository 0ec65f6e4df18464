"""The live view in the lines that a terminal has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from rich.console import Console, Group
from rich.style import Style

from motif_jax.envs import registry
from motif_jax.play import terminal, watching
from motif_jax.play.messages import MessageTally, as_text
from tests.made_up_films import MadeUpPolicy, MadeUpRater
from tests.recorded_outputs import assert_matches_packed_recording


@pytest.fixture(scope="module")
def sight() -> Iterator[watching.WatchedStep]:
    options = watching.with_screen("NetHackScore-v1", {"max_episode_steps": 5})
    environment = registry.make("NetHackScore-v1", **options)
    chooser = watching.policy_actions(MadeUpPolicy(), 3, environment.spec)
    yield next(watching.watch(environment, 3, chooser, MadeUpRater()))
    environment.close()


def view(sight: watching.WatchedStep, height: int, name: str = "wait") -> Group:
    return terminal.view(sight, terminal.RewardTotals(), [name] * 100, "title", "paused", "KEYS", height)


def lines(group: Group) -> list[str]:
    console = Console(width=80, height=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(group)
    return console.export_text().rstrip("\n").split("\n")


def test_what_is_shown_fits_and_is_neither_markup_nor_escape_sequences(sight, record):
    told = {}
    for height in (24, 25, 30, 38):
        shown = lines(view(sight, height))
        assert len(shown) <= height
        told[f"{height}"] = "\n".join(shown)
        screen = next(part for part in view(sight, height).renderables if "Dlvl:1" in str(part))
        hero = [screen.plain[s.start : s.end] for s in screen.spans if s.style == Style(reverse=True)]
        assert hero == ["@"]
    told["actions"] = "\n".join(lines(view(sight, 38, "[/a]\x1b[2J")))
    met = ("b", 2, -0.5), ("a", 2, 2.0), ("c", 9, 0.0), (as_text(b"a wall\na key\x1b"), 1, 0.25)
    tallies = [MessageTally(text, count, 1, 1.0, paid) for text, count, paid in met]
    for most in (2, 100):
        told[f"tables {most}"] = "\n".join(lines(Group(*terminal.message_tables(tallies, "episode 0", most))))
    assert_matches_packed_recording("terminal_view", told, record)


@pytest.mark.parametrize(("paid", "style"), [(0.0, ""), (0.5, "bold green")])
def test_a_text_that_is_paid_is_green(sight, paid, style):
    group, said = view(dataclasses.replace(sight, intrinsic=paid), 38), as_text(sight.text)
    assert said, "nothing is said"
    assert [part.style for part in group.renderables if str(part) == said] == [style]


def test_a_bar_begins_in_the_middle_and_ends_at_its_range() -> None:
    drawn = [terminal.bar(value, width=8).plain for value in (0, 2, -2, 9, -9)]
    assert drawn == ["    |    ", "    |██  ", "  ██|    ", "    |████", "████|    "]
