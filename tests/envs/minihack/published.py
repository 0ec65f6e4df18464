"""Episodes of our classes and of MiniHack's own. As a program: records tests/golden/minihack.json again, by its keys.

python -m tests.envs.minihack.published          # needs the package minihack, and pkg_resources (setuptools below 81)
"""

from __future__ import annotations

import hashlib
import importlib
import json

import numpy as np

from motif_jax.envs.nethack.game import game_seeds
from motif_jax.envs.spec import RUNNING
from motif_jax.support import seeds
from tests.conftest import GOLDEN
from tests.envs.playing import started

FIELDS = ("glyphs", "tty_chars", "tty_colors")
SHOWN = (*FIELDS, "blstats", "message")
FILE = GOLDEN / "minihack.json"


def digest_of(observation) -> bytes:
    parts = (np.ascontiguousarray(observation[name].astype("<i4")).tobytes() for name in SHOWN)
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


def play_ours(name, seed, keys):
    """The episode of `seed` with `keys`: what the golden file has of it."""
    env, out = started(name, seed, fields=FIELDS)
    seen, rewards, end = [digest_of(out)], [], RUNNING
    for key in keys:
        assert end == RUNNING
        reward, end = env.step(env.spec.action_keys.index(key), out)
        seen.append(digest_of(out))
        rewards.append(reward)
    info = env.episode_info()
    env.close()
    return _record(name, seed, keys, seen, rewards, int(info["end"]))


def play_theirs(name, seed, keys):
    """The same on MiniHack's class, with our seeds."""
    import gymnasium
    import minihack  # noqa: F401

    spec = gymnasium.spec(name)
    module, _, kind = spec.entry_point.partition(":")
    make = getattr(importlib.import_module(module), kind)
    env = make(observation_keys=SHOWN, fix_moon_phase=True, **spec.kwargs)
    if "MultiRoom" in name:  # whose own seeding asks minigrid for a method that it has no more
        drawn = env.minigrid_env.reset
        env.minigrid_env.reset = lambda: drawn(seed=seeds.derive(seed, "map") % 2**31)
    env.nethack.set_initial_seeds(*game_seeds(seed), False)
    observation, info = env.reset()
    seen, rewards = [digest_of(observation)], []
    for key in keys:
        observation, reward, _, _, info = env.step([int(action) for action in env.actions].index(key))
        seen.append(digest_of(observation))
        rewards.append(reward)
    env.close()
    return _record(name, seed, keys, seen, rewards, int(info["end_status"]))


def _record(name, seed, keys, seen, rewards, end):
    return {
        "name": name,
        "seed": seed,
        "keys": bytes(keys).hex(),
        # But for the last one, which MiniHack shows after it has quit the game.
        "observations": hashlib.blake2b(b"".join(seen[:-1]), digest_size=16).hexdigest(),
        "rewards": [round(reward, 6) for reward in rewards],
        "end": end,
    }


if __name__ == "__main__":
    known = json.loads(FILE.read_text(encoding="utf-8"))
    recorded = [play_theirs(one["name"], one["seed"], bytes.fromhex(one["keys"])) for one in known]
    FILE.write_text("[\n" + ",\n".join(json.dumps(one) for one in recorded) + "\n]\n", encoding="utf-8")
