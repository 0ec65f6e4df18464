"""The JSON lines of the benchmarks of text agents, with stand-ins for the sides that are
measured.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from motif_jax.benchmarks import _text_agents, text_generation, text_play
from tests.benchmarks.lines import line_of
from tests.clocks import TickingClock

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = _text_agents.FreshAgent(None, {})  # type: ignore[arg-type]
    monkeypatch.setattr(_text_agents, "make", lambda *arguments: agent)


@pytest.fixture
def play_calls(clock: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Of each call of `play`, which takes a second: its actor, its games, and how many of them it
    plays at once.
    """
    calls: list[tuple[str, int, int]] = []

    def play(task: Any, actor: str, seed: int, games: range, lanes: int) -> range:
        calls.append((actor, len(games), lanes))
        return games

    monkeypatch.setattr(text_play, "play", play)
    monkeypatch.setattr(text_play, "AgentTextActor", lambda *arguments: "caching")
    monkeypatch.setattr(text_play, "RereadingActor", lambda *arguments: "rereading")
    monkeypatch.setattr(text_play, "time", TickingClock(itertools.count(1.0)))
    return calls


def test_games_of_text_are_played_together_and_alone(
    play_calls: list[tuple[str, int, int]],
) -> None:
    line_of("text_play", games=9, plain_games=4, num_words=5)

    warm_up = [("caching", 9, 9), ("rereading", 1, 1)]
    repeat = [("caching", 9, 9), ("rereading", 4, 1)]
    assert play_calls == warm_up + 3 * repeat


@pytest.mark.usefixtures("play_calls")
def test_the_line_of_games_of_text_counts_games() -> None:
    line = line_of("text_play", games=9, plain_games=4, num_words=5)

    assert line["value"] == 9
    assert line["baseline"]["value"] == 4


def test_generation_says_how_many_tokens_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.arange(12).reshape(3, 4)
    # Two of the twelve are others.
    plain_tokens = np.maximum(tokens, 2)
    monkeypatch.setattr(
        text_generation, "write_with_caches", lambda agent, decoding, prompts: tokens
    )
    monkeypatch.setattr(
        text_generation,
        "make_plain_writer",
        lambda agent, decoding: lambda params, prompts: plain_tokens,
    )

    line = line_of("text_generation", vocabulary=9, prompt_tokens=5, new_tokens=4, batch_size=3)

    assert line["tokens_equal"] == pytest.approx(10 / 12)
