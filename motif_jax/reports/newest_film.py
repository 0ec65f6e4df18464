"""The player of the newest recorded game of a training, for a page beside it."""

from __future__ import annotations

from pathlib import Path

from motif_jax.core.errors import UserError
from motif_jax.play import newest_game
from motif_jax.reports.run_data import NewestFilm

_STEM = "newest_game"


def write(run: Path, workdir: Path) -> NewestFilm | None:
    """Writes the player of the newest recording of `run` into `workdir`, unless it lies there; None
    where nothing is recorded yet.

    It shows what the agent's reward pays for the game, where that lies in a folder or a file.

    Raises UserError: the game does not replay as it was recorded, its reward cannot be read, or a
    renderer, an engine or a reward of the user's own fails.
    """
    game = newest_game.find(run)
    if game is None:
        return None

    try:
        _write(run, workdir, game)
    except Exception as error:
        raise UserError(newest_game.problem(game, error)) from error
    return NewestFilm(f"{_STEM}.html", game.step)


def _write(run: Path, workdir: Path, game: newest_game.NewestGame) -> None:
    # It imports jax, which a page without a film does not need.
    from motif_jax.play.films.film_files import FilmForms, Films

    reward = newest_game.training_reward(run)
    films = Films(workdir, workdir, FilmForms(ttyrec=False))
    source = [game.path.name, None if reward is None else reward.plan()]
    if not films.has(_STEM, source):
        films.write(_STEM, newest_game.film(game, reward), source)
