"""What texts are paid between two rows of a training's log."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from motif_jax.rl import paid_texts
from motif_jax.rl.paid_texts import PaidRow, PaidText, PaidTextLog, PaidTexts


def texts(*rows: str) -> np.ndarray:
    padded = [row.encode().ljust(8, b"\0") for row in rows]
    return np.frombuffer(b"".join(padded), np.uint8).reshape(len(rows), 8)


def test_batches_are_summed_by_text_with_the_largest_first() -> None:
    sums = PaidTexts()

    sums.add(texts("kill", "gold", "wall"), np.array([1, 4, 9]), np.array([1.0, 2.0, 0.0]))
    sums.add(texts("kill"), np.array([3]), np.array([1.5]))

    assert sums.take(7) == PaidRow(7, 4.5, [PaidText("kill", 4, 2.5), PaidText("gold", 4, 2.0)])


def test_a_text_that_costs_is_not_among_the_most_paid() -> None:
    sums = PaidTexts()

    sums.add(texts("kill", "wall"), np.array([1, 2]), np.array([1.0, -5.0]))

    assert sums.take(1) == PaidRow(1, 1.0, [PaidText("kill", 1, 1.0)])


def test_a_row_has_what_was_paid_since_the_row_before() -> None:
    sums = PaidTexts()
    sums.add(texts("kill"), np.array([1]), np.array([1.0]))
    sums.take(1)

    sums.add(texts("gold"), np.array([1]), np.array([2.0]))

    assert sums.take(2).texts == [PaidText("gold", 1, 2.0)]


def test_nothing_is_lost_between_two_threads() -> None:
    sums = PaidTexts()
    rows = []

    def add() -> None:
        for _ in range(2000):
            sums.add(texts("kill"), np.array([1]), np.array([1.0]))

    thread = threading.Thread(target=add)
    thread.start()
    while thread.is_alive():
        rows.append(sums.take(0))
    thread.join()
    rows.append(sums.take(0))

    assert sum(row.total for row in rows) == 2000


def test_a_resumed_run_drops_rows_after_its_checkpoint(tmp_path: Path) -> None:
    with PaidTextLog(tmp_path, None) as log:
        for step in (10, 20, 30):
            log.write(PaidRow(step, 1.0, [PaidText("ünlock", 1, 1.0)]))

    with PaidTextLog(tmp_path, 20) as log:
        log.write(PaidRow(25, 2.0, []))

    rows = list(paid_texts.read(tmp_path))
    assert [row.step for row in rows] == [10, 20, 25]
    assert rows[0].texts == [PaidText("ünlock", 1, 1.0)]


def a_training(steps_with_text: int, paid: float, of: float = 100.0) -> list[PaidRow]:
    """Two rows: an early one that pays for keys, and one of 100 steps with a text on some of
    them.
    """
    key = PaidText("a key", 3, 30.0)
    return [
        PaidRow(900, 30.0, [key]),
        PaidRow(1000, of, [PaidText("the stairs are fixed", steps_with_text, paid), key]),
    ]


def test_an_agent_that_stays_with_one_text_is_warned_of() -> None:
    warning = paid_texts.standstill(a_training(steps_with_text=96, paid=99.0))

    assert (
        "'the stairs are fixed' came with 96 % of the last 100 steps and had 99 % of what they were paid"
        in warning
    )
    assert "reward.count_exponent=3" in warning


@pytest.mark.parametrize(
    ("coefficient", "exponent", "each_time"),
    [(0.1, 0.0, True), (0.1, 3.0, False), (0.0, 0.0, False)],
)
def test_only_rewards_that_pay_each_time_are_meant(
    coefficient: float, exponent: float, each_time: bool
) -> None:
    assert paid_texts.pays_each_time(coefficient, exponent) == each_time


@pytest.mark.parametrize(
    "rows",
    [a_training(20, 99.0), a_training(96, 40.0), [], [PaidRow(10, 0.0, [])]],
    ids=["the goal of episodes of five steps", "paid less than others", "no rows", "nothing paid"],
)
def test_other_trainings_are_not_warned_of(rows: list[PaidRow]) -> None:
    assert paid_texts.standstill(rows) == ""
