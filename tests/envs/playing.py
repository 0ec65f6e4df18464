"""What tests of environments and of text tasks begin with."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import empty_observation
from motif_jax.ilql.tasks import registry as tasks


def installed_names() -> list[str]:
    """The names of all environments whose package is there."""
    has_crafter = importlib.util.find_spec("crafter") is not None
    return [name for name in registry.names() if has_crafter or not name.startswith("Crafter")]


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
    return error_line(lambda: tasks.make(name, options).check(kind, policy))


def error_line(call, *arguments, **options):
    """The line with which a call is refused."""
    with pytest.raises((UserError, ValueError, RuntimeError)) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def without(folder, values_by_name):
    """What was said of a folder, without its name."""
    return {
        key.replace(str(folder), ""): str(text).replace(str(folder), "")
        for key, text in values_by_name.items()
    }
