"""Every kind of environment keeps its promises, and the pages of a made-up run and of films hold
what they were made of.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.play.films import player
from tests import made_up_films, made_up_runs
from tests.envs.playing import installed_names
from tests.recorded_outputs import assert_matches_recording
from tests.sets import extra

# One environment of each kind and of each family of levels; others differ in their tables alone.
ENVIRONMENTS = [
    name
    for number, name in enumerate(installed_names())
    if "MiniHack" not in name or number % 6 == 0
]


def played(name: str, first_seed: int = 0, steps: int = 60) -> list[Any]:
    """Observations, rewards, ends and numbers while actions are drawn, episode after episode."""
    environment = registry.make(name)
    draws = np.random.default_rng(1)
    out = empty_observation(environment.spec)
    rows = []
    ended = True
    for step in range(steps):
        if ended:
            environment.reset(first_seed + step, out)
        reward, end = environment.step(int(draws.integers(environment.spec.num_actions)), out)
        ended = end != RUNNING
        rows.append(
            (
                {field: array.copy() for field, array in out.items()},
                reward,
                end,
                environment.episode_info(),
            )
        )
    environment.close()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_shows_what_its_spec_says(name: str) -> None:
    observation = registry.spec(name).observation

    for shown, reward, end, info in played(name):
        assert {field: (a.shape, a.dtype.name) for field, a in shown.items()} == {
            field: (array.shape, array.dtype) for field, array in observation.items()
        }
        assert np.isfinite([reward, *info.values()]).all()
        assert end in (0, 1, 2)
        assert info["length"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_episodes_return_is_the_sum_of_its_rewards(name: str) -> None:
    total = 0.0
    for _, reward, end, info in played(name):
        total += reward
        assert info["return"] == pytest.approx(total, abs=1e-5)
        if end != RUNNING:
            total = 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_plays_the_same_game_for_the_same_seed(name: str) -> None:
    np.testing.assert_equal(played(name, steps=30), played(name, steps=30))


def test_the_report_of_a_run_is_this_text(tmp_path: Path, record: bool) -> None:
    texts = made_up_runs.run_texts(made_up_runs.run_data(tmp_path, hacking=True))

    report = texts["report.md"].replace(str(tmp_path), "")
    assert_matches_recording("report.md", report, record, exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("hacking", [extra(False), True])
def test_a_reports_page_and_texts_agree(tmp_path: Path, hacking: bool) -> None:
    data = made_up_runs.run_data(tmp_path, hacking=hacking)
    texts = made_up_runs.run_texts(data)
    page = made_up_runs.run_page(data)

    headings = re.findall(r"^## (.*)$", texts["report.md"], re.MULTILINE)
    assert headings
    for heading in headings:
        assert heading in page
    tables = re.findall(r"^\| --- ", texts["report.md"], re.MULTILINE)
    assert len(re.findall(r"\\begin\{table\}", texts["report.tex"])) == len(tables)
    assert ("Sign of reward hacking" in texts["report.md"]) == hacking


@pytest.mark.parametrize("make", [made_up_films.film, made_up_films.grid_film])
def test_the_page_of_a_film_holds_its_steps(make: Any) -> None:
    film = make()

    page = player.render(film)

    shown = json.loads(re.search(r'<script[^>]*id="film"[^>]*>(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert shown == json.loads(json.dumps(player.player_data(film)))
    assert f"{film.task} · seed {film.seed} · {len(film.actions):,} steps" in page
    assert page.rstrip().endswith("</html>")
