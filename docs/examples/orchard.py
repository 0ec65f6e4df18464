"""A task of one's own: a garden with apples and wasps, told in messages, that every stage here can
play.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/train_agent.py:recall \\
        --workdir=runs/orchard --config.environment.name=orchard:Orchard \\
        --config.environment.max_episode_steps=30 --config.train_for_env_steps=500000
    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/evaluate.py \\
        --workdir=runs/orchard_games --config.policy=runs/orchard --config.trust=orchard:Orchard

An environment writes its observation into arrays that it is given (they may be shared memory), and
is made from its seed: the same seed, the same game. Without a text it would be the same but for
`text_field` and `count_field`; with them a reward of messages can pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.core import seeds
from motif_jax.envs.spec import RUNNING, TRUNCATED, ArraySpec, EnvironmentSpec

SIZE = 5
APPLES = 4
WASPS = 2
LENGTH = 32  # bytes of a message
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
REWARDS = {"apple": 1.0, "wasp": -1.0}
MESSAGES = {
    "apple": b"You eat an apple!",
    "wasp": b"A wasp stings you!",
    "fence": b"It's a fence.",
    "grass": b"",
}


class Orchard:
    """A square of grass. Apples pay 1 and are gone, wasps cost 1 and stay; after
    `max_episode_steps` it gets dark.

    Args:
      name: as it was asked for.
      max_episode_steps: length of an episode.
    """

    def __init__(self, name: str = "Orchard", max_episode_steps: int = 30) -> None:
        self.spec = self.make_spec(name, max_episode_steps)
        self._limit = max_episode_steps

    @staticmethod
    def make_spec(name: str = "Orchard", max_episode_steps: int = 30) -> EnvironmentSpec:
        """What it shows and takes, known without making one."""
        return EnvironmentSpec(
            observation={
                "garden": ArraySpec((3 * SIZE * SIZE,), "float32"),  # hero, apples, wasps
                "message": ArraySpec((LENGTH,), "uint8"),
                "message_count": ArraySpec((), "int32"),
            },
            num_actions=4,
            action_names=("north", "east", "south", "west"),
            text_field="message",
            count_field="message_count",
            episode_fields=("apples", "stings"),
        )

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        """A new garden."""
        cells = seeds.rng(seed, "orchard").permutation(SIZE * SIZE)
        self._hero = divmod(int(cells[0]), SIZE)
        self._apples = {divmod(int(cell), SIZE) for cell in cells[1 : 1 + APPLES]}
        self._wasps = {divmod(int(cell), SIZE) for cell in cells[1 + APPLES : 1 + APPLES + WASPS]}
        self._steps = 0
        self._eaten = 0
        self._stings = 0
        self._seen: dict[bytes, int] = {}
        self._write("grass", out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        """Walks; returns the reward and how the episode stands."""
        self.spec.check_action(action)
        self._steps += 1
        right, down = MOVES[action]
        row = self._hero[0] + down
        column = self._hero[1] + right
        thing = "fence"
        if 0 <= row < SIZE and 0 <= column < SIZE:
            self._hero = (row, column)
            thing = self._thing_here()
        if thing == "apple":
            self._apples.remove(self._hero)
            self._eaten += 1
        elif thing == "wasp":
            self._stings += 1
        self._write(thing, out)
        return REWARDS.get(thing, 0.0), TRUNCATED if self._steps >= self._limit else RUNNING

    def episode_info(self) -> dict[str, float]:
        """Return, length and `episode_fields` of the episode."""
        counts = {"apples": float(self._eaten), "stings": float(self._stings)}
        return {
            "return": counts["apples"] - counts["stings"],
            "length": float(self._steps),
            **counts,
        }

    def close(self) -> None:
        """Nothing to free."""

    def _thing_here(self) -> str:
        if self._hero in self._apples:
            return "apple"
        if self._hero in self._wasps:
            return "wasp"
        return "grass"

    def _write(self, thing: str, out: Mapping[str, np.ndarray]) -> None:
        garden = np.zeros((3, SIZE, SIZE), np.float32)
        for layer, places in enumerate(({self._hero}, self._apples, self._wasps)):
            for place in places:
                garden[layer][place] = 1
        out["garden"][...] = garden.ravel()
        text = MESSAGES[thing]
        self._seen[text] = self._seen.get(text, 0) + 1
        out["message"][...] = np.frombuffer(text.ljust(LENGTH, b"\0"), np.uint8)
        out["message_count"][...] = self._seen[text]
