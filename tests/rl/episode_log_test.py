"""The log of episodes: reports and intrinsic returns that arrive apart, means, and resumed runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from motif_jax.core import metric_files
from motif_jax.rl.episode_log import FILE_NAME, EpisodeLog
from motif_jax.rl.reward_lookup import IntrinsicReturn


def report(env: int, episode: int, value: float = 1.0) -> dict[str, float]:
    return {"env": env, "episode": episode, "seed": 5, "return": value, "length": 4.0}


def add(log: EpisodeLog, *arguments: Any) -> None:
    log.write(log.join(*arguments))


def lines(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    rows = map(json.loads, (folder / FILE_NAME).read_text().splitlines())
    return [tuple(row[name] for name in (*names, "intrinsic_return")) for row in rows]


def test_reports_and_intrinsic_returns_meet_in_either_order(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path, 10, with_intrinsic=True) as log:
        add(log, 10, [report(0, 0)], [])
        assert len(log.state()) == 0
        add(log, 20, [], [IntrinsicReturn(0, 0, 2.5), IntrinsicReturn(1, 0, 0.5)])
        add(log, 30, [report(1, 0, 3.0)], [])
        assert log.means() == {
            "episode/return": 2.0,
            "episode/length": 4.0,
            "episode/intrinsic_return": 1.5,
        }
        # The lines are in the file at once.
        assert lines(tmp_path, "step", "env") == [(10, 0, 2.5), (30, 1, 0.5)]


def test_episodes_that_wait_at_the_end_are_written(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path, 10, with_intrinsic=True) as log:
        add(log, 10, [report(0, 0), report(1, 0)], [IntrinsicReturn(1, 0, 0.5)])
        assert log.state() == [{"step": 10, **report(1, 0), "intrinsic_return": 0.5}]
        log.write(log.join_rest(30, [report(2, 0), report(2, 1)], [IntrinsicReturn(0, 0, 2.5)]))
        assert log.join_rest(40, [], []) == []
    assert lines(tmp_path, "step", "env", "episode") == [
        (10, 1, 0, 0.5), (10, 0, 0, 2.5), (30, 2, 0, None), (30, 2, 1, None)
    ]  # fmt: skip


def test_means_are_over_the_newest_episodes(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path, 2, with_intrinsic=False) as log:
        add(log, 1, [report(0, n, float(n)) for n in range(5)], [])
        assert log.means()["episode/return"] == 3.5
        assert log.has_enough_episodes()


def test_a_number_that_some_episodes_lack_has_no_mean() -> None:
    """Many environments show `is_success` after successes alone: its mean would be 1."""
    with EpisodeLog(None, 4, with_intrinsic=False) as log:
        add(log, 1, [{**report(0, 0), "success": 1.0}, report(0, 1)], [])
        assert "episode/success" not in log.means()
        add(log, 2, [{**report(0, n), "success": n % 2} for n in range(2, 6)], [])
        assert log.means()["episode/success"] == 0.5


def test_no_rate_is_made_of_a_success_that_falls_in_some_episodes(tmp_path: Path) -> None:
    """In two of four episodes of several actors it happened not to fall."""
    rows = [report(env, 0) for env in range(4)]
    for row, key in zip(rows, ["success", "info_success", "success", "info_success"], strict=True):
        row[key] = float(key == "success")
    with EpisodeLog(tmp_path, 4, with_intrinsic=False) as log:
        add(log, 1, rows[:1], [])
        assert log.means()["episode/success"] == 1.0
        add(log, 2, rows[1:], [])
        assert log.success_falls
        assert "episode/success" not in log.means()
        assert log.means()["episode/info_success"] == 0.5
        # No later window is of successes alone either.
        add(log, 3, [{**report(0, n), "success": 1.0} for n in range(1, 9)], [])
        assert "episode/success" not in log.means()
        state = log.state()
    with EpisodeLog(
        tmp_path, 4, with_intrinsic=False, progress={"env_steps": 3, "episodes": state}
    ) as log:
        assert log.success_falls
    curves = metric_files.read_episodes(tmp_path)
    assert "success" not in curves
    assert curves["info_success"].x.tolist() == [1, 2, 2, 2, *[3] * 8]
    assert curves["info_success"].y.tolist() == [1, 0, 1, 0, *[1] * 8]


def test_a_row_without_episodes_has_all_names() -> None:
    with EpisodeLog(None, 1_000, with_intrinsic=True, fields=["success", "end"]) as log:
        names = ("intrinsic_return", "length", "return", "success")
        assert list(log.row()) == [f"episode/{name}" for name in names]
        assert all(map(math.isnan, log.row().values()))


def test_a_hundred_episodes_are_enough_for_means_to_compare_by() -> None:
    with EpisodeLog(None, 1_000, with_intrinsic=True) as log:
        log.write([report(0, n, 3.0) for n in range(99)])
        assert not log.has_enough_episodes()
        log.write([report(0, 99, math.nan)])
        assert log.has_enough_episodes()
        assert log.row()["episode/return"] == 3.0  # a number that is not finite is left out


def test_a_resumed_run_drops_what_it_plays_again(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path, 10, with_intrinsic=False) as log:
        add(log, 10, [report(0, 0)], [])
        state = json.loads(json.dumps(log.state()))
        add(log, 20, [report(0, 1)], [])
    with open(tmp_path / FILE_NAME, "a") as file:
        file.write('{"step": 3, "torn')
    with EpisodeLog(
        tmp_path, 10, with_intrinsic=False, progress={"env_steps": 10, "episodes": state}
    ) as log:
        assert log.means()["episode/return"] == 1.0
        add(log, 15, [report(0, 1, 2.0)], [])
    assert lines(tmp_path, "step", "return") == [(10, 1.0, None), (15, 2.0, None)]


def test_an_episode_of_a_lost_rollout_lacks_intrinsic_return(tmp_path: Path) -> None:
    """Also where the run was resumed in between."""
    with EpisodeLog(tmp_path, 10, with_intrinsic=True) as log:
        add(log, 5, [report(4, 0)], [])
        add(
            log,
            10,
            [report(4, 1), report(3, 1)],
            [IntrinsicReturn(4, 1, 1.0), IntrinsicReturn(3, 1, 0.5)],
        )
        state = log.state()
    with EpisodeLog(tmp_path, 10, True, {"env_steps": 10, "episodes": state}) as log:
        add(log, 20, [report(3, 0)], [])
    rows = lines(tmp_path, "env", "episode")
    assert rows == [(4, 1, 1.0), (3, 1, 0.5), (4, 0, None), (3, 0, None)]
