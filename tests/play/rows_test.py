from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.ilql.agent.decoding import TokenFacts
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import constant_reward
from motif_jax.ilql.evaluation.text_episodes import PlayedText, TextAction
from motif_jax.ilql.evaluation.text_setup import TextEvalSetup
from motif_jax.ilql.tasks import registry
from motif_jax.play import journal as module
from motif_jax.play.evaluation_files import Journal
from motif_jax.play.journal import play_missing, play_policy
from tests.clocks import TickingClock
from tests.play.stand_ins import RecordedProgress


def test_a_row_of_text_counts_actions_and_tokens() -> None:
    task = registry.make("tests.toy_text:Task", {})
    setup = TextEvalSetup(task, None, {}, task.tokenizer(), constant_reward(0.5))  # type: ignore[arg-type]
    dialogue = Dialogue(("abc", "c", "b"), (None, 1.0, 0.25), True)
    actions = []
    end = task.tokenizer().delimiters.action_end
    for text, tokens, steered in (("c", [2, end], [-1.0, -2.0]), ("b", [1], [-4.0])):
        numbers = np.array(steered, np.float32)
        best = np.array(tokens, np.int32)
        facts = TokenFacts(numbers, numbers - 1, numbers + 1, numbers * 0, best, best * 0)
        actions.append(TextAction(text, np.array(tokens), facts, 0.75))
    row = setup.row(PlayedText(3, dialogue, tuple(actions)), 7, tokens=True)
    assert row["seed"] == seeds.derive(7, "evaluate_text", "environment", 3)
    assert (row["index"], row["return"], row["length"], row["token_return"]) == (3, 1.25, 2, 2.75)
    # The second action has no end: it was cut.
    assert (row["actions_cut"], row["tokens_said"], row["divergence"], row["entropy"]) == (
        1,
        3,
        1.5,
        7.0,
    )
    assert row["tokens"][0]["pieces"] == ["c", task.tokenizer().decode([end])]
    assert row["tokens"][1]["by_values"] == ["a"]
    assert (row["tokens"][0]["policy"], row["tokens"][0]["q"]) == ([-2.0, -3.0], [0.0, -1.0])
    plain = setup.row(PlayedText(3, dialogue, (TextAction("c"), TextAction("b"))), 7, tokens=True)
    assert (plain["token_return"], "tokens_said" in plain) == (3.25, False)


EARLIER = (
    {"index": 4, "return": 9.0, "length": 1, "session": 1},
    {"index": 1, "return": None, "failed_requests": 2, "session": 0},
)
ROW = {"return": 2.0, "length": 5, "failed_requests": 1}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The journal of an evaluation that was resumed once; of its first three episodes it has the
    second.
    """
    with Journal(tmp_path) as journal:
        for row in EARLIER:
            journal.append(row)
        yield journal


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> RecordedProgress:
    """The progress line of episodes, each of which takes a quarter of a second."""
    progress = RecordedProgress()
    monkeypatch.setattr(module, "Progress", progress)
    monkeypatch.setattr(module, "time", TickingClock(itertools.count(100.0, 0.25)))
    return progress


def row_of(index: int) -> dict[str, Any]:
    return {"index": index, **ROW}


def test_missing_episodes_are_appended_and_all_come_by_index(
    journal: Journal, progress: RecordedProgress
) -> None:
    rows = play_missing(journal, 3, "t", lambda _: iter((2, 0)), row_of, "tokens")

    first = {**row_of(2), "session": 2, "session_seconds": 0.25}
    second = {**row_of(0), "session": 2, "session_seconds": 0.5}
    assert journal.rows == [*EARLIER, first, second]
    assert rows == [second, EARLIER[1], first]


def test_the_progress_counts_earlier_episodes_too(
    journal: Journal, progress: RecordedProgress
) -> None:
    play_missing(journal, 3, "t", lambda _: iter((2, 0)), row_of, "tokens")

    begin, first, second = progress.entries
    assert begin == (3, "episodes", "t", 1)
    # An episode without a return counts as 0.
    assert first == (2, {"mean return": 2 / 2, "tokens/s": 5 / 0.25, "failed_requests": 2 + 1})
    assert second == (3, {"mean return": 4 / 3, "tokens/s": 10 / 0.5, "failed_requests": 2 + 2})


@pytest.mark.usefixtures("progress")
def test_episodes_of_a_journal_are_not_played_again(journal: Journal) -> None:
    journal.append({**row_of(0), "session": 2})

    # `play` would fail.
    rows = play_missing(journal, 2, "t", lambda _: 1 / 0, dict)

    assert [row["index"] for row in rows] == [0, 1]


def test_a_policy_plays_the_episodes_that_a_journal_lacks(
    journal: Journal, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def play(
        *arguments: Any,
        on_death: Callable[[int], None],
        on_steps: Callable[[int], None],
        **more: Any,
    ) -> Iterator[str]:
        calls.append((arguments, more))
        on_death(3)
        on_steps(9)
        yield "episode"

    monkeypatch.setattr(module, "play_episodes", play)
    game = ("game", {"a": 1})
    policy: Any = "policy"
    how: Any = "how"
    stop: Any = "stop"

    play_policy(journal, "t", game, policy, [5, 6], how, stop, lambda episode: {"index": 0, **ROW})

    assert calls == [((*game, [5, 6], policy, how), {"skip": {4, 1}, "stop": stop})]
    assert "worker processes that died and were replaced: 3" in progress.entries
    assert {"steps": 9} in progress.entries
