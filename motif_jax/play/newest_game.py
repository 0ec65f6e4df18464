"""The newest recorded game of a training as a film, with what the training's reward pays for it.

The module itself imports no jax: a page without a film does not need it, and the process that makes
films chooses its devices.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from motif_jax.core.errors import UserError, first_line
from motif_jax.rl.actors import rerecording

if TYPE_CHECKING:
    from motif_jax.play.ratings import RatingReward
    from motif_jax.play.watching import Film

# Of a GIF that goes into a file of events: one of 5,000 steps has the size of one of 200.
_MAX_FRAMES = 200
_MAX_BYTES = 500_000


class NewestGame(NamedTuple):
    """A recording of a training, and the training's step at which the game ended."""

    path: Path
    step: int


def find(run: Path) -> NewestGame | None:
    """The newest recording of a training; None where nothing is recorded yet."""
    games = []
    for path in (run / rerecording.FOLDER).glob("step-*.json"):
        match = rerecording.STEM.fullmatch(path.stem)
        if match is not None:
            games.append(NewestGame(path, int(match[1])))
    return max(games, key=lambda game: (game.step, game.path.name), default=None)


def training_reward(run: Path) -> RatingReward | None:
    """The reward that a training's agent learns from; None where it lies in no folder or file.

    Raises UserError: `run` is no training of an agent, or its reward has gone.
    """
    from motif_jax.play import agent_policy, ratings
    from motif_jax.rl.reward_keys import Scoring

    config = agent_policy.read_config(run)
    if not config.reward.dir:
        return None
    reward = ratings.RatingReward(config.reward, agent_policy.rounded_threshold(config.compat))
    return ratings.choose_reward(Scoring(), reward, str(run))


def film(game: NewestGame, reward: RatingReward | None) -> Film:
    """The film of a recorded game. Raises UserError: it does not replay as recorded, or its reward
    cannot be read.
    """
    from motif_jax.envs.recording import Recording
    from motif_jax.play import replay

    title = f"The newest recorded game, step {game.step:,}"
    return replay.rated_film(Recording.load(game.path), title, reward)


def problem(game: NewestGame, error: Exception) -> str:
    """A line on why `game` has no film: a `UserError`, or the error of a renderer, of an engine or
    of a reward of the user's own.
    """
    if isinstance(error, UserError):
        return str(error)
    return f"{game.path.name}: {type(error).__name__}: {first_line(error)}"


class MadeGif(NamedTuple):
    """A GIF of the recording called `name`."""

    name: str
    gif: bytes


class GifMaker:
    """The work of a process that makes a GIF of a training's newest recorded game: a
    `ProcessWork`.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        # A batch system's signals reach the whole process group: the parent decides what they mean.
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        # The training has the accelerator to itself.
        # jax reads this when it is imported, which `film` does.
        os.environ["JAX_PLATFORMS"] = "cpu"
        self._run = Path(setup["run"])

    def answer(self, request: str) -> MadeGif | str:
        """The GIF, or a line on why there is none; '' where there is no other recording than the
        one called `request`.
        """
        game = find(self._run)
        if game is None or game.path.name == request:
            return ""
        try:
            return MadeGif(game.path.name, self._gif(game))
        # Renderers, engines and rewards of users raise anything; a line then names the game.
        except Exception as error:
            return problem(game, error)

    def _gif(self, game: NewestGame) -> bytes:
        from motif_jax.play.films import movie

        return movie.bounded_gif(film(game, training_reward(self._run)), _MAX_FRAMES, _MAX_BYTES)

    def close(self) -> None:
        pass
