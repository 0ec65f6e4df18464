"""Networks that read prompts are refused in one line where section, prompts and actions do not
fit.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec
from motif_jax.glam import agent
from motif_jax.rl import agent_networks
from tests.glam.agent_test import LEVEL, settings
from tests.lm import talkers
from tests.refusals import refuses

AGENTS: list[tuple[dict[str, Any], str]] = [
    (
        {"head_widths": ()},
        "config.network.head_widths=(): must be whole numbers above 0, such as (1024, 1024)",
    ),
    ({"model": ""}, "config.network.model='': must be a folder, or a name of the hub"),
    (
        {"glam_raw_logit_score": True, "score": "scaled_probability"},
        "config.compat.glam_raw_logit_score=True: must be False: the score has one form, and compat.glam_raw_logit_score, compat.glam_scaled_probability_score and network.score name several",
    ),
    (
        {"glam_scaled_probability_score": True, "glam_raw_logit_score": True},
        "config.compat.glam_raw_logit_score=True: must be False: the score has one form, and compat.glam_raw_logit_score, compat.glam_scaled_probability_score and network.score name several",
    ),
    (
        {"base": "int8"},
        "config.lora.base='int8': must be 'float32' without config.lora.patterns: what is learned is not frozen",
    ),
    (
        {"keep_embedding": True},
        "config.network.keep_embedding=True: must be False with network.pretrained=True, which keeps all weights",
    ),
    (
        {"policy": "actions", "score": "raw_logit"},
        "config.network.score='raw_logit': must be log_probability, the default, with network.policy=actions: a head scores no words",
    ),
    (
        {"policy": "actions", "by_length": True},
        "config.network.by_length=True: must be False with network.policy=actions: a head scores no words",
    ),
    (
        {"patterns": "*/query", "pretrained": False},
        "config.network.pretrained=False: must be True with config.lora.patterns: low-rank additions are learned to a model that is there",
    ),
]


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


@pytest.mark.parametrize("shape", [(5, 3), (6,), (7, 3), (6, 3, 1)])
def test_candidates_of_another_shape_are_refused(talker: Path, shape: tuple[int, ...]) -> None:
    with refuses(
        f"the environment's candidates are {list(shape)}: they must be [6 actions, tokens]"
    ):
        agent_of(talker, shape)


def test_prompts_and_actions_must_fit_the_model(talker: Path) -> None:
    assert agent_of(talker, (6, 17), 239).candidates is None
    with refuses(
        "config.network.prompt_tokens=160: prompt and action must fit the 256 positions of the model"
    ):
        agent_of(talker, (6, 97))


def test_an_environment_without_tokens_is_refused(talker: Path) -> None:
    config = settings(model=str(talker))
    with refuses("config.network.kind=language: the environment shows no tokens"):
        agent_networks.class_of(config).make(config, registry.spec("Recall-v0"))


@pytest.mark.parametrize(("changes", "words"), AGENTS, ids=str)
def test_sections_that_make_no_agent_are_refused(changes: dict[str, Any], words: str) -> None:
    sections = settings(**{"model": "m", **changes})
    with refuses(words):
        agent.check(sections.network, sections.lora, sections.compat)


def test_a_fresh_agent_needs_no_weights() -> None:
    sections = settings(model="m", pretrained=False)
    agent.check(sections.network, sections.lora, sections.compat)
