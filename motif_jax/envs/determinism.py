"""Whether an environment from outside the package plays an episode again from its seed and
actions.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.checked import unplayable
from motif_jax.envs.episode import play, random_actions
from motif_jax.envs.recording import Digest
from motif_jax.envs.spec import Environment

_STEPS = 200
_SEEDS = (1, 2)
REMEDY = "draw all its random numbers from the generator that reset(seed=...) seeds, and those of its pictures from another one"


def is_outside(name: str) -> bool:
    """Whether the environment is the user's: this package's are functions of their seeds."""
    return registry.is_gym(name) or entry_points.is_entry_point(name)


def require(name: str, options: Mapping[str, Any], use: str) -> None:
    """Plays two short random episodes of an environment from outside twice each, once in a fresh
    environment.

    An environment that can draw pictures draws them in one of the two, as a film does.

    Args:
      use: what needs it, for the error: 'config.policy=agents'.

    Raises:
      UserError: an episode is not the same the second time, or the environment fails in it; says
          what the environment has to do.
    """
    if not is_outside(name):
        return
    with (
        contextlib.closing(registry.make(name, **options)) as first,
        # Pictures may draw from the game's generator, so that to look changes the game.
        contextlib.closing(_with_pictures(name, options)) as second,
    ):
        for seed in _SEEDS:
            # Its later episodes then follow others, unlike those of the fresh environment.
            _play(first, name, options, seed)
        for seed in _SEEDS:
            if _play(first, name, options, seed) != _play(second, name, options, seed):
                raise UserError(
                    f"{use} plays episodes again from their seeds and actions, and config.environment.name={name} is not "
                    f"a function of these: seed {seed} gave two different episodes; {REMEDY}"
                )


def _with_pictures(name: str, options: Mapping[str, Any]) -> Environment:
    """The environment, which draws pictures where it can: not everywhere, as without a display."""
    pictures = registry.spec(name, **options).optional_fields
    fields = (*options.get("fields", ()), *pictures)
    if pictures:
        # whoever needs the pictures asks for them, and is refused then
        with contextlib.suppress(UserError):
            return registry.make(name, **{**options, "fields": fields})
    return registry.make(name, **options)


def _play(environment: Environment, name: str, options: Mapping[str, Any], seed: int) -> str:
    """A digest of the first steps of a random player in the episode `seed`. Raises UserError: the
    environment fails.
    """
    digest = Digest(name, options)
    episode = play(environment, seed, random_actions(environment.spec, seed))
    try:
        for transition in itertools.islice(episode, _STEPS):
            digest.add(transition.observation, transition.reward, transition.end)
    except UserError:
        raise
    except Exception as error:
        raise unplayable(name, error) from error
    return digest.hexdigest()
