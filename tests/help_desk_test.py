"""The help desk of docs/examples/help_desk.py: who earns what, and that agents learn from its
dialogues and play in it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from docs.examples import help_desk
from tests.processes import REPOSITORY
from tests.reward_fixtures import launch


def conversation(*answers: str, seed: int = 0) -> tuple[help_desk.Desk, list[float]]:
    """The dialogue with these answers of the clerk, and what each earned; `{remedy}` is the right
    one.
    """
    customer = help_desk.HelpDesk()
    desk = customer.reset(np.random.default_rng(seed))
    rewards = []
    for answer in answers:
        outcome = customer.step(answer.format(remedy=help_desk.PROBLEMS[desk.problem]))
        desk = outcome.observation
        rewards.append(outcome.reward)
    return desk, rewards


def test_who_asks_first_and_helps_earns_one() -> None:
    desk, rewards = conversation("What is your order number?", "I will {remedy} it.")

    assert rewards == [0, 1]
    assert desk.ended


def test_a_promise_without_the_number_costs_half() -> None:
    desk, rewards = conversation("I will {remedy} it.")

    assert rewards == [-0.5]
    assert desk.ended


def test_two_remedies_at_once_earn_nothing() -> None:
    _, rewards = conversation(
        "Your number, please?", "I will trace it, exchange it, and send a new one."
    )

    assert rewards == [0, 0]


def test_the_dialogue_ends_after_four_answers_without_a_remedy() -> None:
    desk, rewards = conversation("Hello.", "Oh dear.", "I see.", "Well.")

    assert rewards == [0, 0, 0, 0]
    assert desk.to_sequence().texts[2] == "Pardon?"
    assert desk.ended


def test_clerks_earn_what_the_page_says() -> None:
    returns = [help_desk.dialogue(seed).total for seed in range(300)]

    assert np.mean(returns) == pytest.approx(-0.26, abs=0.005)
    assert np.mean(np.array(returns) == 1) == pytest.approx(0.09, abs=0.005)


@pytest.mark.extra
def test_an_agent_learns_from_the_file_and_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY / 'docs/examples'}:{REPOSITORY}")
    data = tmp_path / "dialogues.jsonl"
    help_desk.main(str(data), count=60)
    options = '{"environment": "help_desk:HelpDesk", "vocab_size": 300}'
    sizes = ["width=16", "layers=1", "heads=2", "max_length=96"]

    launch(
        "train_text",
        tmp_path / "agent",
        *(f"--config.network.{size}" for size in sizes),
        *("--config.task=dialogues", f"--config.data={data}", f"--config.options={options}"),
        *(
            "--config.max_steps=4",
            "--config.evaluate_every=4",
            "--config.batch_size=4",
            "--config.games.episodes=2",
        ),
        variant="bc",
    )

    last = json.loads((tmp_path / "agent" / "metrics.jsonl").read_text().splitlines()[-1])
    assert any(name.startswith("games/") for name in last)
