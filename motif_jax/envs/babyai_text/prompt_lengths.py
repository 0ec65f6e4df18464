"""The length of a level's prompts in tokens, tried before anybody plays it who reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import PROMPT_BYTES
from motif_jax.envs.episode import fixed_actions, play

# Prompts are tried in so many episodes, so many steps of each: windows are full by then.
TRIED_EPISODES = 16
_TRIED_STEPS = 8


def longest_prompt(
    environment: str, options: Mapping[str, Any], episode_seeds: Sequence[int]
) -> int:
    """The tokens of the longest prompt in the beginnings of the first episodes, played at
    random.
    """
    # No prompt has more tokens than bytes.
    game = registry.make(environment, **{**options, "prompt_tokens": PROMPT_BYTES})
    longest = 0
    for seed in episode_seeds[:TRIED_EPISODES]:
        actions = seeds.rng(seed, "tried").integers(game.spec.num_actions, size=_TRIED_STEPS)
        for transition in play(game, seed, fixed_actions(actions)):
            longest = max(longest, int((transition.observation["tokens"] >= 0).sum()))
    game.close()
    return longest


def require_room(
    environment: str,
    options: Mapping[str, Any],
    episode_seeds: Sequence[int],
    key: str,
    remedy: str,
    subject: str = "a prompt",
) -> None:
    """Raises UserError where a prompt has more tokens than `options` allow; it names `key`, the
    `subject` that is too long, and the remedy.
    """
    if "tokenizer" not in options:
        return
    room = options["prompt_tokens"]
    longest = longest_prompt(environment, options, episode_seeds)
    if longest > room:
        raise UserError(
            f"config.{key}: {subject} has {longest} tokens, and {room} are allowed: {remedy}"
        )
