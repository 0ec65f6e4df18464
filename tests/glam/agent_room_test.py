"""The prompt and the actions of a language agent fit the positions of its model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec
from motif_jax.rl import agent_networks
from tests.glam.agent_test import LEVEL, settings
from tests.lm import talkers


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talkers.write(tmp_path_factory.mktemp("talker") / "model", "gpt2")


def agent_of(talker: Path, shape: tuple[int, ...], tokens: int = 160) -> Any:
    """An agent of a level whose prompts have candidates of this shape."""
    config = settings(model=str(talker), prompt_tokens=tokens)
    kind = agent_networks.class_of(config)
    spec = registry.spec(LEVEL, **kind.environment_options(settings(model=str(talker))))
    fields = {**spec.observation, "candidates": ArraySpec(shape, "int32")}
    changed = dataclasses.replace(spec, observation=fields)
    return kind.make(config, changed)


def test_prompts_and_actions_must_fit_the_model(talker: Path) -> None:
    assert agent_of(talker, (6, 17), 239).candidates is None
    with pytest.raises(UserError, match="must fit the 256 positions"):
        agent_of(talker, (6, 97))
