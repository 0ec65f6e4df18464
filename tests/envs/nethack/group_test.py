from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack.group import NetHackGroup
from motif_jax.envs.sequential import SingleEnvironments
from motif_jax.envs.spec import RUNNING, empty_observation, row
from tests.envs.playing import error_line

OPTIONS = {"fields": ("glyphs", "tty_chars", "tty_colors"), "max_episode_steps": 120}
QUIRKS = {"crop_row_offset": True, "timeout_as_terminal": True, "message_count_off": True}


@pytest.mark.parametrize(
    ("task", "options", "kind", "least"),
    [
        ("NetHackScore-v1", OPTIONS, NetHackGroup, 5),
        ("NetHackScore-v1", {**OPTIONS, "compat": QUIRKS}, NetHackGroup, 5),
        ("MiniHack-Room-Ultimate-15x15-v0", OPTIONS, NetHackGroup, 3),
        ("Recall-v0", {}, SingleEnvironments, 5),
    ],
)
def test_a_group_is_so_many_single_games(task, options, kind, least):
    """Ended episodes rest for a step now and then before they start again."""
    rng = np.random.default_rng(1)
    count = 3
    group = registry.make_group(task, count, **options)
    assert isinstance(group, kind)
    singles = [registry.make(task, **options) for _ in range(count)]
    out = empty_observation(group.spec, (count,))
    expected = empty_observation(group.spec, (count,))
    rows = [row(expected, column) for column in range(count)]
    episode = 0
    finished = 0
    ended = [True] * count
    for _ in range(300):
        started = [column for column in range(count) if ended[column] and rng.random() < 0.7]
        for column in started:
            episode += 1
            group.start(column, episode)
            singles[column].reset(episode, rows[column])
            ended[column] = False
        playing = [column for column in range(count) if not ended[column] and column not in started]
        actions = rng.integers(0, group.spec.num_actions, count).tolist()
        rewards, ends = group.step(actions, playing)
        group.observe(out)
        for column in range(count):
            if column not in playing:
                assert (rewards[column], ends[column]) == (0.0, RUNNING)
                continue
            assert singles[column].step(actions[column], rows[column]) == (
                rewards[column],
                ends[column],
            )
            assert group.episode_info(column) == singles[column].episode_info()
            ended[column] = ends[column] != RUNNING
            finished += ended[column]
        shown = [column for column in range(count) if not ended[column] or column in playing]
        for name, array in expected.items():
            np.testing.assert_array_equal(out[name][shown], array[shown], name)
    assert finished >= least
    group.close()
    group.close()
    assert (
        kind is not NetHackGroup
        or error_line(group.step, [0] * count, [0]) == "the environment is closed"
    )
    for single in singles:
        single.close()
