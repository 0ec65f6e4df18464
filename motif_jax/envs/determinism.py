"""A look at an environment from outside the package before work starts: whether an episode is a
function of its seed and actions, and whether its success is one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError, first_line
from motif_jax.core.metric_files import FALLEN_SUCCESS
from motif_jax.envs import recording, registry
from motif_jax.envs.checked import unplayable
from motif_jax.envs.episode import EpisodePlayer, PlayedEpisode, random_actions
from motif_jax.envs.spec import Environment

# Random episodes of at most `_EPISODE_STEPS` are played until they have `_STEPS` in all, then the
# first `_START_STEPS` of others: there it shows what an episode has from the one before.
_STEPS = 200
_EPISODE_STEPS = 100
_START_STEPS = 5
_EPISODES = 40
# Actions of the environment's own seed could be those that its generator makes right.
_ACTION_SEED = 1_000
REMEDY = "draw all its random numbers from the generator that reset(seed=...) seeds, and those of its pictures from another one"

# What is wrong with an environment that does not play an episode again.
CARRIES = "it keeps something from one episode to the next"
UNSEEDED = "its seed does not determine its episodes"


class Look(NamedTuple):
    """What short random episodes show of an environment.

    Attributes:
      fault: '', `CARRIES` or `UNSEEDED`.
      success_falls: whether `info`'s success was true and then false within an episode.
      failure: the error in which the environment ended the look; '' for none.
    """

    fault: str = ""
    success_falls: bool = False
    failure: str = ""


def is_outside(name: str) -> bool:
    """Whether the environment is the user's: this package's are functions of their seeds."""
    return registry.is_gym(name) or entry_points.is_entry_point(name)


def look(name: str, options: Mapping[str, Any]) -> Look:
    """Plays short random episodes in two fresh environments, in each of them twice.

    Two environments that have played the same differ where random numbers come from elsewhere than
    the seed; one that differs from itself alone has kept something. An environment that fails
    meanwhile is not judged: actors make such a one again.

    Raises UserError: the environment gives numbers that no agent can learn from.
    """
    try:
        return _look(name, options)
    except UserError:
        raise
    except Exception as error:  # an environment of the user's may raise anything
        return Look(failure=f"{type(error).__name__}: {first_line(error)}")


def require_forgetful(name: str, options: Mapping[str, Any]) -> None:
    """Raises UserError for an environment that keeps something from one episode to the next: each
    actor's keeps its own, and none has it where the agent plays later.
    """
    # A stage begins: in a notebook the environment may have been mended since the last one.
    _looked.cache_clear()
    if look(name, options).fault == CARRIES:
        raise UserError(f"config.environment.name={name} cannot be played: {_forgetting(name)}")


def require(name: str, options: Mapping[str, Any], use: str) -> None:
    """Requires that an environment from outside plays its episodes again, also where it draws
    pictures in between, as for a film.

    Args:
      use: what needs it, for the error: 'config.policy=agents'.

    Raises:
      UserError: an episode is not the same the second time, or the environment fails in it; says
          what the environment has to do.
    """
    try:
        fault = _look(name, options, with_pictures=True).fault
    except UserError:
        raise
    except Exception as error:
        raise unplayable(name, error) from error
    if not fault:
        return
    remedy = _forgetting(name) if fault == CARRIES else f"{fault}; {REMEDY}"
    raise UserError(
        f"{use} plays episodes again from their seeds and actions, and config.environment.name={name} is not a function of "
        f"these: {remedy}"
    )


def remarks(name: str, options: Mapping[str, Any]) -> list[str]:
    """Lines on an environment that can be played, but of which not all holds that is usual."""
    seen = look(name, options)
    lines = []
    if seen.failure:
        lines.append(
            f"{name}: failed while short random episodes were played ({seen.failure}), so that nobody knows whether its seed "
            "determines its episodes"
        )
    if seen.fault == UNSEEDED:
        lines.append(
            f"{name}: the same seed and actions gave two different episodes. Its games are not compared as pairs, and are neither "
            f"recorded nor played again. To have that, {REMEDY}"
        )
    if seen.success_falls:
        lines.append(success_remark(name))
    return lines


def success_remark(name: str) -> str:
    """The line on a success that is none."""
    return (
        f"{name}: the success in its info was true and then false within an episode, so it is a measure like others, "
        f"{FALLEN_SUCCESS}, and no success rate: a success stays true, or ends the episode"
    )


def _forgetting(name: str) -> str:
    remedy = "begin each episode anew in reset(seed=...), its random numbers too"
    if registry.is_gym(name):
        # What wrappers learn stays in an actor's process; the network's statistics are in its
        # checkpoints.
        remedy += (
            "; in place of NormalizeObservation use --config.network.observation_normalisation=running, "
            "in place of NormalizeReward --config.algorithm.value_normalisation=running"
        )
    return f"{CARRIES}, as a wrapper does that learns statistics, which evaluations, films and other processes do not have: {remedy}"


def _look(name: str, options: Mapping[str, Any], with_pictures: bool = False) -> Look:
    if not is_outside(name):
        return Look()
    return _looked(name, json.dumps(dict(options), sort_keys=True), with_pictures)


# Kept: a stage asks before it starts and while it runs.
@functools.lru_cache(maxsize=64)
def _looked(name: str, options_json: str, with_pictures: bool) -> Look:
    options = json.loads(options_json)
    with contextlib.closing(registry.make(name, **options)) as first:
        played = _play_twice(first, name, options)
        learns = getattr(first, "learns", False)
    # Pictures may draw from the game's generator, so that to look changes the game.
    second = _with_pictures(name, options) if with_pictures else registry.make(name, **options)
    with contextlib.closing(second):
        played_elsewhere = _play_twice(second, name, options)
    fault = ""
    # Rewards of 0, or random numbers from elsewhere, would hide what a wrapper learns.
    if learns:
        fault = CARRIES
    elif played != played_elsewhere:
        fault = UNSEEDED
    elif played.digests != played.digests_again:
        fault = CARRIES
    return Look(fault, played.success_falls or played_elsewhere.success_falls)


class _Played(NamedTuple):
    """Digests of the same random episodes, played one after another and then once more, from the
    last to the first, so that each follows another one.
    """

    digests: list[str]
    digests_again: list[str]
    success_falls: bool


def _with_pictures(name: str, options: Mapping[str, Any]) -> Environment:
    """The environment, which draws pictures where it can: not everywhere, as without a display."""
    pictures = registry.spec(name, **options).optional_fields
    fields = (*options.get("fields", ()), *pictures)
    if pictures:
        # Whoever needs the pictures asks for them and is told then; gymnasium may raise anything.
        with contextlib.suppress(Exception):
            return registry.make(name, **{**options, "fields": fields})
    return registry.make(name, **options)


def _play_twice(environment: Environment, name: str, options: Mapping[str, Any]) -> _Played:
    fields = recording.digest_fields(name, options)
    player = EpisodePlayer(environment, keep_texts=False, digest_fields=fields)
    digests: list[str] = []
    limits: list[int] = []
    steps = 0
    success_falls = False
    while len(digests) < _EPISODES:
        limits.append(_EPISODE_STEPS if steps < _STEPS else _START_STEPS)
        episode = _play(player, len(limits), limits[-1])
        digests.append(str(episode.digest))
        steps += len(episode)
        success_falls = success_falls or FALLEN_SUCCESS in episode.info
    again = [
        str(_play(player, seed, limit).digest) for seed, limit in reversed([*enumerate(limits, 1)])
    ]
    return _Played(digests, again[::-1], success_falls)


def _play(player: EpisodePlayer, seed: int, limit: int) -> PlayedEpisode:
    """The first `limit` steps of a random player in the episode `seed`."""
    choose = random_actions(player.environment.spec, _ACTION_SEED + seed)
    # The first observation is no step.
    for _ in itertools.islice(player.transitions(seed, choose), limit + 1):
        pass
    return player.episode()
