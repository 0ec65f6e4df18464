"""The published log.csv: its columns, whose statistics a row has, and what a run that is resumed
keeps.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from motif_jax.glam.training_hooks import FILE, GlamLog, GlamPosition

METRICS = {"loss/policy": -0.5, "loss/value": 2.0, "policy/entropy": 1.5, "value/mean": 0.7}
METRICS |= {"optimizer/gradient_norm": 3.0}
# The published columns, with what a row of 5 episodes in 4 environments has in them: returns, the
# same times 20 as "reshaped", and no bonus.
PUBLISHED = {
    "update": 3, "episodes": 13, "frames": 301, "FPS": 2.0, "duration": 6,
    "return_mean": 0.25, "return_std": 0.5, "return_min": -0.5, "return_max": 1.0, "success_rate": 0.6,
    "reshaped_return_mean": 7.0, "reshaped_return_std": 7.483314773547883,
    "reshaped_return_min": 0.0, "reshaped_return_max": 20.0,
    "reshaped_return_bonus_mean": 0.0, "reshaped_return_bonus_std": 0.0,
    "reshaped_return_bonus_min": 0.0, "reshaped_return_bonus_max": 0.0,
    "num_frames_mean": 10.4, "num_frames_std": 7.391887445030531, "num_frames_min": 3.0, "num_frames_max": 24.0,
    "entropy": 1.5, "policy_loss": -0.5, "value_loss": 3.0, "loss": 0.985, "grad_norm": 3.0,
}  # fmt: skip


def rows(folder: Path) -> list[dict[str, float]]:
    with (folder / FILE).open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def episode(value: float, length: float) -> dict[str, float]:
    return {"return": value, "length": length}


def test_a_row_has_the_episodes_of_its_update(tmp_path: Path) -> None:
    log = GlamLog(tmp_path, 4, 20.0, (0.5, 0.01))
    log.write(0, 100, 2.0, METRICS)
    log.add([episode(0.9, 10), episode(0.0, 64)])
    log.write(1, 200, 4.0, METRICS)
    log.add([episode(0.5, number) for number in range(6)])
    log.write(2, 300, 6.0, METRICS)
    log.add(
        [episode(0.25, 3), episode(-0.5, 6), episode(0.0, 12), episode(1.0, 24), episode(0.5, 7)]
    )
    log.write(3, 301, 6.5, METRICS | {"loss/value": 3.0})
    log.write(4, 400, 6.5, METRICS)
    log.close()
    _, two, six, more, _ = rows(tmp_path)
    # Two episodes, and zeros in the place of the other two environments', as published.
    assert (two["return_mean"], two["success_rate"], two["num_frames_max"]) == (0.225, 0.25, 64)
    assert six["loss"] == pytest.approx(-0.5 + 0.5 * 2.0 - 0.01 * 1.5)
    assert list(more) == list(PUBLISHED)
    assert more == pytest.approx(PUBLISHED)


def test_a_row_is_in_the_file_before_the_next_update(tmp_path: Path) -> None:
    log = GlamLog(tmp_path, 4, 20.0, (0.5, 0.01))

    log.write(0, 100, 2.0, METRICS)

    assert [row["frames"] for row in rows(tmp_path)] == [100]
    log.close()


def test_the_symbolic_log_has_values_and_drrn_no_policys_loss(tmp_path: Path) -> None:
    log = GlamLog(tmp_path, 2, 20.0, (1.0, 0.0), value=True)
    log.write(
        0, 100, 1.0, {name: number for name, number in METRICS.items() if name != "loss/policy"}
    )
    log.close()
    (row,) = rows(tmp_path)
    assert (row["value"], row["policy_loss"], row["value_loss"], row["loss"]) == (
        0.7,
        0.0,
        2.0,
        2.0,
    )


def test_a_run_that_goes_on_drops_what_is_done_again(tmp_path: Path) -> None:
    log = GlamLog(tmp_path, 2, 20.0, (0.5, 0.01))
    for update in range(3):
        log.add([episode(1.0, 5)])
        log.write(update, 100 * update, 1.0, METRICS)
    log.close()
    with (tmp_path / FILE).open("a") as file:
        file.write("3,torn")
    newest = [episode(1.0, 5)] * 2
    log = GlamLog(tmp_path, 2, 20.0, (0.5, 0.01), GlamPosition(2, newest, 100, 10.0), value=True)
    log.write(2, 200, 12.0, METRICS)
    log.close()
    updates = rows(tmp_path)
    assert [row["update"] for row in updates] == [0, 1, 2]
    assert [updates[-1][name] for name in ("episodes", "return_mean", "FPS")] == [2, 1.0, 50]
    assert "value" not in updates[-1], "the columns stay those that the log was begun with"
