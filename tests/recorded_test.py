"""Environments, pages and films give what was recorded (recorded_outputs.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.reports import player
from tests import made_up_films, made_up_runs
from tests.recorded_outputs import assert_matches_packed_recording, shown_array

# One environment of each kind and of each family of levels; others differ in their tables alone.
ENVIRONMENTS = [
    name for place, name in enumerate(registry.names()) if "MiniHack" not in name or place % 6 == 0
]


def played(name: str, steps: int = 60) -> str:
    """What an environment shows and pays while actions are drawn, episode after episode."""
    environment, draws = registry.make(name), np.random.default_rng(1)
    out, lines, ended = empty_observation(environment.spec), [], True
    for step in range(steps):
        if ended:
            environment.reset(step, out)
        reward, end = environment.step(int(draws.integers(environment.spec.num_actions)), out)
        ended = end != RUNNING
        if ended or step % 6 == 0:
            lines += [f"{field} {shown_array(array)}" for field, array in sorted(out.items())]
            lines.append(f"{environment.episode_info()}")
        lines.append(f"{reward} {end}")
    environment.close()
    return "\n".join(lines)


def test_environments_show_and_pay_what_was_recorded(record: bool) -> None:
    assert_matches_packed_recording("environments", {name: played(name) for name in ENVIRONMENTS}, record)


@pytest.mark.parametrize("hacking", [pytest.param(False, marks=pytest.mark.slow), True])
def test_pages_of_runs(tmp_path: Path, hacking: bool, record: bool) -> None:
    data = made_up_runs.run_data(tmp_path, hacking=hacking)
    parts = made_up_runs.run_texts(data) | {"page": made_up_runs.run_page(data)}
    assert_matches_packed_recording(
        f"run_page_{hacking}", {name: text.replace(str(tmp_path), "") for name, text in parts.items()}, record
    )


def test_pages_of_films(record: bool) -> None:
    films = {"game": made_up_films.film(), "grid": made_up_films.grid_film()}
    assert_matches_packed_recording(
        "films", {name: player.render(film) for name, film in films.items()}, record
    )
