"""The published log.csv: its columns, whose statistics a row has, and what a run that is resumed
keeps.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from motif_jax.glam.log_csv import FILE, GlamLog, GlamPosition
from tests.recorded_outputs import assert_matches_recording

METRICS = {"loss/policy": -0.5, "loss/value": 2.0, "policy/entropy": 1.5, "value/mean": 0.7}
METRICS |= {"optimizer/gradient_norm": 3.0}


def rows(folder: Path) -> list[dict[str, float]]:
    with (folder / FILE).open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def episode(value: float, length: float) -> dict[str, float]:
    return {"return": value, "length": length}


def test_a_row_has_the_episodes_of_its_update(tmp_path: Path, record: bool) -> None:
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
    _, two, six, *_ = rows(tmp_path)
    # Two episodes, and zeros in the place of the other two environments', as published.
    assert (two["return_mean"], two["success_rate"], two["num_frames_max"]) == (0.225, 0.25, 64)
    assert six["loss"] == pytest.approx(-0.5 + 0.5 * 2.0 - 0.01 * 1.5)
    # What a user plots: all of the published columns, of rows with fewer and with more episodes
    # than environments.
    assert_matches_recording("glam_log.csv", (tmp_path / FILE).read_text(), record, exact=False)


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
