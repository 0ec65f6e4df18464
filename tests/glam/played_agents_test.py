"""Language agents in other levels and after a change of their files: what is refused before the
first episode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.glam import collect_trajectories
from motif_jax.play import agent_policy, evaluation_setup
from motif_jax.play.config import PlayedPolicy
from motif_jax.rl import agent_checkpoints, agent_networks
from motif_jax.rl.config import agent_config
from motif_jax.schema import read_section
from tests import stage_inputs
from tests.lm import talkers
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.slow
# A level whose prompts have more than the 160 tokens of the agent's training.
LONGER = "BabyAI-PickUpSeqPickUpLocal-v0"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage_inputs.Inputs(tmp_path_factory.mktemp("inputs")).language_agent


def played(agent: Path, **changes: Any) -> PlayedPolicy:
    return read_section(
        PlayedPolicy, load_config("evaluate", "smoke", {"policy": str(agent), **changes})
    )


def test_longer_prompts_than_the_trainings_are_refused_before_an_evaluation(agent: Path) -> None:
    evaluation_setup.check(played(agent))

    line = (
        rf"^config\.environment\.name={LONGER}: a prompt has 1\d\d tokens, and 160 are allowed: choose another level or "
        r"change, or an agent .* test_language_agent"
    )
    with pytest.raises(UserError, match=line):
        evaluation_setup.check(played(agent, **{"environment.name": LONGER}))


def test_longer_prompts_than_the_trainings_are_refused_before_a_collection(
    agent: Path, tmp_path: Path
) -> None:
    config = load_config("collect_trajectories", "smoke", {"policy": str(agent)})
    collect_trajectories.check(config, tmp_path / "new")

    config.environment.name = LONGER
    with pytest.raises(
        UserError, match=rf"^config\.environment\.name={LONGER}: a prompt has 1\d\d tokens, and 160"
    ):
        collect_trajectories.check(config, tmp_path / "new")


def test_an_agent_before_its_training_is_that_of_its_model(tmp_path: Path) -> None:
    inputs = stage_inputs.Inputs(tmp_path / "inputs")
    agent = inputs.language_agent
    config = agent_policy.read_config(agent)
    progress = {
        agent_checkpoints.START_DIGESTS: agent_networks.class_of(config).start_digests(config),
    }
    _, step = agent_policy.load(agent)
    with agent_checkpoints.open_checkpoints(agent, 5) as checkpoints:
        params = checkpoints.restore(step, {"params": agent_policy.load(agent)[0].params})
        agent_checkpoints.save(checkpoints, 128, params, progress, {}, asynchronous=False)
    agent_policy.load(agent, "0")
    digest = agent_policy.identity(agent, 0)

    talkers.write(inputs.model, "gpt2", seed=1)

    assert agent_policy.identity(agent, 0) not in (None, digest)
    with pytest.raises(
        UserError, match=r"was trained with a different model than config\.network\.model"
    ):
        agent_policy.load(agent, "0")
    agent_policy.load(agent)  # has parameters of its own


@pytest.mark.parametrize(
    ("changes", "pinned"),
    [
        ({}, ["at its start"]),
        ({"network.pretrained": False}, []),
        ({"network.pretrained": False, "network.keep_embedding": True}, ["at its start"]),
        ({"lora.patterns": "*/attention/*"}, ["all along"]),
    ],
)
def test_an_agent_pins_its_models_weights_where_it_reads_them(
    changes: dict[str, Any], pinned: list[str], tmp_path: Path
) -> None:
    model = talkers.write(tmp_path / "model", "gpt2")
    values = {"network.model": str(model), **changes}
    config = agent_config(load_config("train_language_agent", "smoke", values))
    kind = agent_networks.class_of(config)

    names = {
        "at its start": list(kind.start_digests(config)),
        "all along": [name for name in kind.file_digests(config) if name == "base model"],
    }

    assert [name for name, digests in names.items() if digests] == pinned
