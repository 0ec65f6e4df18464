from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.ilql.agent.decoding import TokenFacts
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.token_rewards import constant
from motif_jax.ilql.evaluation.text_episodes import PlayedText, TextAction
from motif_jax.ilql.evaluation.text_setup import TextEvalSetup
from motif_jax.ilql.tasks import registry
from motif_jax.play import journal as module
from motif_jax.play.journal import play_missing, play_policy
from tests.play.told import Told


def test_a_row_of_text_counts_actions_and_tokens() -> None:
    task = registry.make("tests.toy_text:Task", {})
    setup = TextEvalSetup(task, None, {}, task.tokenizer(), constant(0.5))  # type: ignore[arg-type]
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
    assert (row["actions_cut"], row["tokens_said"], row["divergence"], row["entropy"]) == (1, 3, 1.5, 7.0)
    assert row["tokens"][0]["pieces"] == ["c", task.tokenizer().decode([end])]
    assert row["tokens"][1]["by_values"] == ["a"]
    assert (row["tokens"][0]["policy"], row["tokens"][0]["q"]) == ([-2.0, -3.0], [0.0, -1.0])
    plain = setup.row(PlayedText(3, dialogue, (TextAction("c"), TextAction("b"))), 7, tokens=True)
    assert (plain["token_return"], "tokens_said" in plain) == (1.25, False)


def test_episodes_of_a_journal_are_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [
        {"index": 4, "return": 9.0, "length": 1},
        {"index": 1, "return": None, "failed_requests": 2},
    ]
    journal = SimpleNamespace(rows=rows, session=2, append=rows.append, done={7})
    row = {"return": 2.0, "length": 5, "failed_requests": 1}
    clock = itertools.count(100.0, 0.25)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(module, "Progress", progress := Told())
    played = play_missing(journal, 3, "t", lambda _: iter((2, 0)), lambda i: {"index": i, **row}, "tokens")
    new = [{"index": i, **row, "session": 2, "session_seconds": 0.25 + 0.25 * (i == 0)} for i in (0, 2)]
    assert played == [new[0], rows[1], new[1]]
    shown = {"mean return": 1.0, "tokens/s": 20.0, "failed_requests": 3}
    then = {**shown, "mean return": 4 / 3, "failed_requests": 4}
    assert progress.said == [(3, "episodes", "t", 1), (2, shown), (3, then)]
    assert play_missing(journal, 2, "t", lambda _: 1 / 0, dict) == played[:2]

    def play(*arguments: Any, on_death: Any, **more: Any) -> Iterator[Any]:
        on_death(3)
        yield arguments, more

    monkeypatch.setattr(module, "play_episodes", play)
    journal.rows = []
    game = ("game", {"a": 1})
    calls = list[Any]()
    how: Any = ("policy", [5, 6], "how")
    row = {"return": 1.0, "length": 4}
    play_policy(journal, "t", game, *how, "stop", lambda one: calls.append(one) or row)
    assert calls == [((*game, how[1], how[0], how[2]), {"skip": {7}, "stop": "stop"})]
    died = "worker processes that died and were replaced: 3"
    shown = {"mean return": 1.0, "steps/s": 16.0}
    assert progress.said[-3:] == [(2, "episodes", "t", 0), died, (1, shown)]
