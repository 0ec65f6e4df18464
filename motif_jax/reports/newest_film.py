"""The player of the newest recorded game of a training, for a page beside it."""

from __future__ import annotations

from pathlib import Path

from motif_jax.reports import recorded_games
from motif_jax.reports.run_data import NewestFilm

_STEM = "newest_game"


def write(run: Path, workdir: Path) -> NewestFilm | None:
    """Writes the player of the newest recording of `run` into `workdir`, unless it lies there; None where nothing is recorded yet.

    It shows what the agent's reward pays for the game, where that lies in a folder or a file.

    Raises UserError: the game does not replay as it was recorded, or its reward cannot be read.
    """
    recordings = {}
    for path in (run / "recordings").glob("step-*.json"):
        match = recorded_games.NAME.fullmatch(path.stem)
        if match is not None:
            recordings[int(match[1]), path.name] = path
    if not recordings:
        return None
    (step, _), path = max(recordings.items())

    # These import jax, which a page without a film does not need.
    from motif_jax.envs.replay import Recording
    from motif_jax.play import agent_policy, ratings, replay
    from motif_jax.play.films.film_files import FilmForms, Films
    from motif_jax.rl.reward_keys import Scoring

    config = agent_policy.read_config(run)
    reward = None
    if config.reward.dir:
        agent_reward = ratings.RatingReward(config.reward, agent_policy.rounded_threshold(config.compat))
        reward = ratings.choose_reward(Scoring(), agent_reward, str(run))
    films = Films(workdir, workdir, FilmForms(ttyrec=False))
    source = [path.name, None if reward is None else reward.plan()]
    if not films.has(_STEM, source):
        recording = Recording.load(path)
        film = replay.rated_film(recording, f"The newest recorded game, step {step:,}", reward)
        films.write(_STEM, film, source)
    return NewestFilm(f"{_STEM}.html", step)
