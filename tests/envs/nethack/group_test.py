"""A group of games shows what as many single games show."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.sequential import SingleEnvironments
from motif_jax.envs.spec import RUNNING, empty_observation, row

FIELDS = ("glyphs", "tty_chars", "tty_colors")


def assert_same(group, singles, steps, seed):
    """Plays both with the same actions; ended episodes rest for a step now and then before they start again."""
    rng = np.random.default_rng(seed)
    count = len(singles)
    out, expected = empty_observation(group.spec, (count,)), empty_observation(group.spec, (count,))
    rows = [row(expected, column) for column in range(count)]
    episode, ended = 0, [True] * count
    finished = 0
    for _ in range(steps):
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
            assert singles[column].step(actions[column], rows[column]) == (rewards[column], ends[column])
            assert group.episode_info(column) == singles[column].episode_info()
            ended[column] = ends[column] != RUNNING
            finished += ended[column]
        shown = [column for column in range(count) if not ended[column] or column in playing]
        for name, array in expected.items():
            np.testing.assert_array_equal(out[name][shown], array[shown], name)
    return finished


QUIRKS = {"crop_row_offset": True, "timeout_as_terminal": True, "message_count_off": True}


@pytest.mark.parametrize(
    ("task", "compat", "least"),
    [
        ("NetHackScore-v1", None, 5),
        ("NetHackScore-v1", QUIRKS, 5),
        ("MiniHack-Room-Ultimate-15x15-v0", None, 3),
    ],
)
def test_a_group_is_so_many_single_games(task, compat, least):
    options = {"fields": FIELDS, "max_episode_steps": 120, "compat": compat}
    group = registry.make_group(task, 3, **options)
    singles = [registry.make(task, **options) for _ in range(3)]
    assert assert_same(group, singles, 300, seed=1) >= least
    group.close()
    group.close()
    for single in singles:
        single.close()


def test_single_environments_behave_as_a_group():
    group = registry.make_group("Recall-v0", 2)
    assert type(group) is SingleEnvironments
    out = empty_observation(group.spec, (2,))
    for column in range(2):
        group.start(column, column)
    single = registry.make("Recall-v0")
    expected = empty_observation(single.spec)
    single.reset(1, expected)
    for _ in range(3):
        group.observe(out)
        for name, array in expected.items():
            np.testing.assert_array_equal(out[name][1], array)
        rewards, ends = group.step([0, 0], [1])
        assert (rewards[1], ends[1]) == single.step(0, expected)
        assert (rewards[0], ends[0], group.episode_info(0)["length"]) == (0.0, RUNNING, 0.0)
        assert group.episode_info(1) == single.episode_info()
    group.close()
