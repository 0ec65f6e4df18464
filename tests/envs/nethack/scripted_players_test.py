from __future__ import annotations

import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.episode import play
from motif_jax.envs.nethack.actions import TASK_KEYS, action_names
from motif_jax.envs.nethack.scripted_players import ERRANDS, FIELDS
from motif_jax.envs.nethack.status import DEPTH, X, Y
from tests.envs.playing import told
from tests.recorded_outputs import assert_matches_packed_recording

SPEC = registry.spec("NetHackScore-v1", fields=FIELDS)


def key(choose, rows, message=b""):
    """The key that is chosen where the map has these rows."""
    chars = np.full((24, 80), ord(" "), np.uint8)
    for y, row in enumerate(rows, start=1):
        chars[y, : len(row)] = np.frombuffer(row.encode(), np.uint8)
    tints, status = np.full((24, 80), 7, np.uint8), np.zeros(27, np.int32)
    ((y, x),) = np.argwhere(chars == ord("@")).tolist()
    status[[X, Y, DEPTH]] = x, y - 1, 1
    text = np.frombuffer(message.ljust(256, b"\0"), np.uint8)
    seen = {"tty_chars": chars, "tty_colors": tints, "blstats": status, "message": text}
    return chr(TASK_KEYS[choose(seen)])


def test_it_leaves_the_peaceful_alone():
    hunts = ERRANDS["fighter"].player(0, SPEC)
    beside = ("|.@h.+|",)
    assert key(hunts, rows=beside) == "l"
    assert key(hunts, rows=beside, message=b"Really attack the dwarf? [yn] (n)") == "s"
    assert key(hunts, rows=beside) != "l"


def test_what_they_play_is_what_was_recorded(record):
    env, parts = registry.make("NetHackScore-v1", fields=FIELDS, max_episode_steps=250), {}
    for name, errand in ERRANDS.items():
        for seed in (8, 11):
            steps = play(env, seed, errand.player(seed, env.spec))
            parts[f"{name} {seed}"] = " ".join(action_names(TASK_KEYS[step.action] for step in steps))
    env.close()
    parts["refused"] = told(ERRANDS["diver"].player, 0, registry.spec("NetHackScore-v1"))
    assert_matches_packed_recording("scripted_players", parts, record)
