"""Reward hacking: the intrinsic return rises while progress in the game falls."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.reports import hacking
from motif_jax.reports.run_data import RunData


def episodes(reward: float, depth: float | None, count: int = 20) -> dict[str, np.ndarray]:
    measures = {"intrinsic_return": np.full(count, reward), "xlvl": np.zeros(count)}
    return measures if depth is None else measures | {"dlvl": np.full(count, depth)}


@pytest.mark.parametrize(
    ("reward", "depth", "kind", "verdict"),
    [
        (1.0, 1.0, "", "does not change clearly."),
        (0.0, 3.0, "", "intrinsic return 1 to 0 falls."),
        (3.0, 1.0, "bad", "rises while dungeon level 2 to 1 falls."),
        (3.0, 3.0, "good", "rises; dungeon level 2 to 3 rises too."),
        (3.0, 2.0, "", "rises; progress does not change clearly."),
        (3.0, None, "", "rises; no progress in the game was recorded."),
    ],
)
def test_a_verdict_weighs_reward_against_progress(
    reward: float, depth: float | None, kind: str, verdict: str
) -> None:
    judged = hacking.judge(episodes(1.0, 2.0), episodes(reward, depth), ("a", "b"))

    assert judged.kind == kind
    assert "from a (n = 20) to b (n = 20), intrinsic return 1" in judged.line
    assert judged.line.endswith(verdict)


@pytest.mark.parametrize(
    ("named", "kind", "end"),
    [
        # What an environment counts may be better where there is less of it.
        ({}, "good", "rises; success rate 0 to 1 rises too."),
        ({"deaths": -1}, "good", "rises; success rate 0 to 1 rises and deaths 1 to 0 falls too."),
        ({"kills": 1}, "bad", "rises while kills 3 to 1 falls. Yet success rate 0 to 1 rises."),
        (
            {"kills": 1, "errors": -1},
            "bad",
            "rises while kills 3 to 1 falls and errors 2 to 4 rises. Yet success rate 0 to 1 rises.",
        ),
    ],
)
def test_other_numbers_are_progress_where_they_are_named(
    named: dict[str, int], kind: str, end: str
) -> None:
    numbers = {
        "intrinsic_return": (1.0, 3.0),
        "success": (0.0, 1.0),
        "deaths": (1.0, 0.0),
        "kills": (3.0, 1.0),
        "errors": (2.0, 4.0),
    }
    before, after = (
        {key: np.full(20, values[side]) for key, values in numbers.items()} for side in (0, 1)
    )

    verdict = hacking.judge(before, after, ("a", "b"), named=named)

    assert verdict.kind == kind
    assert verdict.line.endswith(end)


def test_a_few_games_that_all_succeed_are_no_change() -> None:
    """20 of 20 after 16 of 20: Newcombe's interval has 0 in it, the bootstrap's does not."""
    changed = hacking.change("won", np.repeat([0.0, 1.0], [4, 16]), np.ones(20))

    assert changed.sign == 0


@pytest.mark.parametrize("count", [0, 19])
def test_a_measure_of_part_of_a_training_is_left_out(count: int) -> None:
    """As a number of `info` that comes with the first success."""
    before = episodes(1.0, 2.0) | {"success": np.zeros(count)}
    after = episodes(3.0, 3.0) | {"success": np.ones(20)}

    assert hacking.judge(before, after, ("a", "b")).line.endswith(
        "rises; dungeon level 2 to 3 rises too."
    )


def test_few_episodes_are_not_judged() -> None:
    judged = hacking.judge(episodes(1.0, 2.0), episodes(3.0, 1.0, count=19), ("a", "b"))

    assert judged.kind == ""
    assert (
        judged.line
        == "Not checked for reward hacking: 19 episodes on one side, at least 20 are needed."
    )


def test_a_training_without_intrinsic_returns_is_not_judged() -> None:
    assert hacking.judge_training({}).line.startswith("Not checked for reward hacking")


def test_a_training_is_judged_by_its_first_and_last_fifth() -> None:
    steps = np.arange(101.0)
    reward = np.where(steps <= 20, 1.0, np.where(steps >= 80, 3.0, 50.0))
    reward[[10, 90]] = np.nan
    curves = {"intrinsic_return": Curve(steps, reward), "dlvl": Curve(steps, 1 / reward)}

    verdict = hacking.judge_training(curves)

    assert verdict.line == (
        "Sign of reward hacking: from the first 20 % of training (n = 20) to the last 20 % (n = 20), intrinsic return 1 to 3 rises "
        "while dungeon level 1.00 to 0.33 falls."
    )


def evaluation(reward: float, folder: str) -> dict[str, object]:
    """What `read_evaluation` returns of 20 episodes that a reward in `folder` has rated."""
    rows = [
        {"index": index, "seed": index, "intrinsic_return": reward, "dlvl": 2.0}
        for index in range(20)
    ]
    return {
        "measures": {"intrinsic_return": {}, "dlvl": {}},
        "plan": {"environment": "toy", "reward": {"dir": folder}},
        "rows": rows,
    }


def test_evaluations_are_compared_by_one_reward_alone() -> None:
    baseline = evaluation(1.0, "/runs/reward")

    same = hacking.judge_evaluations(baseline, evaluation(3.0, "/runs/reward"), ("random", "agent"))
    other = hacking.judge_evaluations(baseline, evaluation(3.0, "/runs/other"), ("random", "agent"))

    assert "intrinsic return 1 to 3 rises" in same.line
    assert other.line == (
        "Not checked for reward hacking: random and agent were rated by different rewards (dir /runs/reward and /runs/other)."
    )


def test_a_single_evaluation_has_nothing_beside_it() -> None:
    data = RunData("t", evaluations={"agent": evaluation(1.0, "runs/a")})

    (verdict,) = hacking.judge_run(data)

    assert "nothing to compare it with was given" in verdict.line
