"""What tests of environments and of text tasks begin with."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import empty_observation
from motif_jax.ilql.tasks import registry as tasks
from tests.recorded_outputs import shown_array


def started(name, seed=0, **options):
    """The environment in the episode of `seed`, and the arrays that hold what it shows."""
    env = registry.make(name, **options)
    out = empty_observation(env.spec)
    env.reset(seed, out)
    return env, out


def recorded(name, options):
    """All recorded dialogues of a text task."""
    task = tasks.make(name, options)
    return list(task.stream("recorded", "")(np.random.default_rng(0), task.count("recorded"), 0))


def refused(name, options, kind="recorded", policy="recorded"):
    """The line with which a text task is refused."""
    return told(lambda: tasks.make(name, options).check(kind, policy))


def told(call, *given, **options):
    """The line with which a call is refused."""
    with pytest.raises((UserError, ValueError, RuntimeError)) as error:
        call(*given, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def shown_frame(frame):
    """The lines of a frame, their colours as letters, and all that stands beside them."""
    lines = [bytes(line).decode("latin-1") for line in (*frame.chars, *(frame.colors + ord("a")))]
    picture = None if frame.picture is None else shown_array(frame.picture)
    beside = frame.cursor, frame.numbers, frame.spare_rows, frame.notes, picture
    return "\n".join(map(str, (*lines, *beside)))


def without(folder, said):
    """What was said of a folder, without its name."""
    return {key.replace(str(folder), ""): str(text).replace(str(folder), "") for key, text in said.items()}


def shown(name, steps=6, seeds=(0, 1), **options):
    """All that episodes show, pay and count while actions are drawn: texts as they are, other arrays by their numbers."""
    env, draws, lines = registry.make(name, **options), np.random.default_rng(3), []
    out = empty_observation(env.spec)
    for seed in seeds:
        env.reset(seed, out)
        ended, results = 0, [None]
        for _ in range(steps):
            for field, array in sorted(out.items()):
                text = array.ndim == 1 and array.dtype == np.uint8
                lines.append(f"{field} {array.tobytes().rstrip(bytes(1)) if text else shown_array(array)}")
            lines.append(f"{results[-1]} {env.episode_info()}")
            if ended:
                break
            results.append(env.step(int(draws.integers(env.spec.num_actions)), out))
            ended = results[-1][1]
    env.close()
    return "\n".join(lines)
