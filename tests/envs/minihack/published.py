"""Episodes of MiniHack's own classes, and the keys for them. As a program: records tests/golden/minihack.json.

python -m tests.envs.minihack.published          # needs the package minihack, and pkg_resources (setuptools below 81)
"""

from __future__ import annotations

import hashlib
import importlib
import json

import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.minihack.levels import LEVELS
from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.envs.nethack.game import game_seeds
from motif_jax.envs.nethack.scripted_players import ERRANDS
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.support import seeds
from tests.conftest import GOLDEN

FIELDS = ("glyphs", "tty_chars", "tty_colors")
SHOWN = (*FIELDS, "blstats", "message")
FILE = GOLDEN / "minihack.json"
_ON_DOORS = {"KeyRoom": b"a", "LockedDoor": b"\x04", "Locked-v0": b"\x04", "ClosedDoor": b"o"}
_LETTER = 0  # of what was picked up
# From the middle of the room to its corner, and what is done with the thing that lies there.
_SKILLS = {
    "Eat": [*b"yy,e", _LETTER],
    "Wield": [*b"yy,w", _LETTER],
    "Wear": [*b"yy,W", _LETTER],
    "PutOn": [*b"yy,P", _LETTER],
    "Zap": [*b"yy,z", _LETTER],
    "Read": [*b"yy,r", _LETTER],
    "Pray": [*b"yy", 0xF0, *b"y"],
    "Sink": [*b"yyqy"],
}


def digest_of(observation) -> bytes:
    parts = (np.ascontiguousarray(observation[name].astype("<i4")).tobytes() for name in SHOWN)
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


def play_ours(name, seed, keys):
    """The episode of `seed` with `keys`: what the golden file has of it."""
    env = registry.make(name, fields=FIELDS)
    out = empty_observation(env.spec)
    env.reset(seed, out)
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


def choose_keys(name, seed):
    """Keys of one episode: of a player that explores and goes for the stairs, or of the skill, with some at random."""
    env = registry.make(name, fields=FIELDS)
    keys, out = env.spec.action_keys, empty_observation(env.spec)
    rng = np.random.default_rng(seed)
    env.reset(seed, out)
    skill = list(_SKILLS.get(name.split("-")[1], ())) if "Fixed" in name else []
    on_doors = next((key[0] for part, key in _ON_DOORS.items() if part in name), None)
    nethack = registry.spec("NetHackScore-v1", fields=FIELDS)
    explore = ERRANDS["diver"].player(seed, nethack)
    pressed, end, letter, way = [], RUNNING, 0, None
    while end == RUNNING:
        message = out["message"].tobytes()
        letter = message[0] if message[1:4] == b" - " else letter
        door, explored = _door(out), TASK_KEYS[explore(out)]
        if skill:
            key = skill.pop(0) or letter
        elif way:
            key, way = way, None
        elif rng.random() < 0.1:
            key = int(rng.choice(keys))
        elif door and on_doors and rng.random() < 0.8:
            key, way = on_doors, None if on_doors == ord("a") else door
        elif b"see here" in message and ord(",") in keys:
            key = ord(",")
        else:
            key = explored if explored in keys else int(rng.choice(keys))
        pressed.append(key)
        end = env.step(keys.index(key), out)[1]
    env.close()
    return pressed


def _door(out):
    """The key towards a closed door straight beside the hero."""
    x, y = (int(place) for place in out["blstats"][:2])
    ways = {ord("k"): (0, -1), ord("l"): (1, 0), ord("j"): (0, 1), ord("h"): (-1, 0)}
    return next((k for k, (dx, dy) in ways.items() if out["glyphs"][y + dy, x + dx] in (2374, 2375)), None)


def episodes():
    """Names and seeds of the episodes."""
    often = (
        "KeyRoom-S5",
        "KeyRoom-Dark-S5",
        "MultiRoom-N2",
        "MultiRoom-N4",
        "MultiRoom-N2-Locked",
        "LockedDoor",
        "Corridor-R2",
    )
    some = (
        "Room-5x5", "Room-Random-15x15", "Room-Ultimate-15x15", "River-Lava", "MultiRoom-N4-Monster", "MultiRoom-N2-Extreme",
        "ClosedDoor", "MazeWalk-9x9", "Labyrinth-Small", "HideNSeek", "CorridorBattle", "Eat-Distr", "Quest-Medium",
    )  # fmt: skip
    found = [(f"MiniHack-{name}-v0", seed) for name in often for seed in range(4)]
    found += [(f"MiniHack-{name}-v0", 7) for name in some]
    found += [(f"MiniHack-{name}-Fixed-v0", 3) for name in _SKILLS]
    return [*found, ("MiniHack-KeyRoom-Fixed-S5-v0", 1)]


if __name__ == "__main__":
    recorded = []
    for task, number in episodes():
        assert task in LEVELS
        chosen = choose_keys(task, number)
        recorded.append(play_theirs(task, number, chosen))
        same = play_ours(task, number, chosen) == recorded[-1]
        print(f"{task} {number}: {len(chosen)} keys, end {recorded[-1]['end']}, the same here: {same}")
    FILE.write_text("[\n" + ",\n".join(json.dumps(one) for one in recorded) + "\n]\n", encoding="utf-8")
