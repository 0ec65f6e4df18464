"""What actions are called when people watch."""

from __future__ import annotations

from motif_jax.envs import registry
from motif_jax.envs.nethack.actions import TASK_KEYS

_KEY_NAMES = {
    13: "more", ord("k"): "north", ord("l"): "east", ord("j"): "south", ord("h"): "west",
    ord("u"): "north-east", ord("n"): "south-east", ord("b"): "south-west", ord("y"): "north-west",
    ord("K"): "run north", ord("L"): "run east", ord("J"): "run south", ord("H"): "run west",
    ord("U"): "run north-east", ord("N"): "run south-east", ord("B"): "run south-west", ord("Y"): "run north-west",
    ord("<"): "up", ord(">"): "down", ord("."): "wait", 4: "kick", ord("e"): "eat", ord("s"): "search",
}  # fmt: skip


def action_names(task: str, num_actions: int) -> tuple[str, ...]:
    """Names of the actions of a task; 'action N' where there are no better ones."""
    if task in registry.NETHACK_TASKS and num_actions == len(TASK_KEYS):
        return tuple(_KEY_NAMES[key] for key in TASK_KEYS)
    return tuple(f"action {number}" for number in range(num_actions))


def action_keys(task: str, num_actions: int) -> tuple[int, ...]:
    """The byte that each action sends to the game, 0 where there is none."""
    return (
        TASK_KEYS if task in registry.NETHACK_TASKS and num_actions == len(TASK_KEYS) else (0,) * num_actions
    )
