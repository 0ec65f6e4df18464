"""train_text: every method on a task from outside the package, exact resume, what comes out, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.datasets.dialogues import parquet
from motif_jax.envs.text import registry
from motif_jax.offline import agent_folder
from motif_jax.stages import train_text as stage
from motif_jax.support import seeds
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config

TOY = "tests.toy_text:Task"
TINY = {
    "task": TOY, "policy": "half", "network.width": 16, "network.layers": 1, "network.heads": 2, "network.max_length": 16, "batch_size": 8,
    "max_steps": 4, "evaluate_every": 2, "chunk_steps": 2, "evaluation_batches": 1, "num_devices": 1, "optimizer.learning_rate": 1e-2,
    "held_out.share": 0.25,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly() -> Iterator[None]:
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def config_of(method: str = "ilql", **overrides: Any) -> Any:
    config = load_config("train_text", f"wordle_{method}")
    config.update_from_flattened_dict({**TINY, **overrides})
    return config


def train(workdir: Path, method: str = "ilql", **overrides: Any) -> Path:
    config = config_of(method, **overrides)
    stage.check(config, workdir)
    assert stage.run(config, workdir) == 0
    return workdir


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = registry.make(TOY, {})
    path = tmp_path_factory.mktemp("data") / "dialogues.parquet"
    parquet.write(path, [task.stream("games", "half").sample(seeds.rng(0, "toy"), 64)], {})
    return path


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    return train(tmp_path_factory.mktemp("bc"), "bc", data=str(data))


@pytest.fixture(scope="module")
def valued(tmp_path_factory: pytest.TempPathFactory, data: Path, cloned: Path) -> Path:
    """Implicit Q-learning from the cloned policy, which stays as it is."""
    initial = {"initial.policy": str(cloned), "initial.value": str(cloned), "loss.policy": 0.0}
    return train(tmp_path_factory.mktemp("ilql"), "ilql", data=str(data), **initial)


def test_an_agent_is_read_with_its_task_and_says_what_it_expects(cloned: Path, valued: Path) -> None:
    policy, agent = agent_folder.load(cloned), agent_folder.load(valued)
    assert (agent.method, agent.task_name, agent.settings["discount"]) == ("ilql", TOY, 0.99)
    assert set(agent.params["trunks"]) == {"policy", "values", "target"}
    jax.tree.map(
        np.testing.assert_array_equal, agent.params["trunks"]["policy"], policy.params["trunks"]["policy"]
    )
    tokens = jnp.arange(12, dtype=jnp.int32).reshape(2, 6)
    look = agent.network.look(agent.params, tokens, jnp.ones((2, 6), bool))
    assert look.logits.shape == look.target_q.shape == (2, 6, agent.tokenizer.size)
    assert look.values.shape == (2, 6)
    heads = agent.network.target_heads
    states = agent.network.run(agent.params, tokens, jnp.ones((2, 6), bool))["target"]
    both = [heads.apply(agent.params["target_heads"], name, states) for name in ("q1", "q2")]
    np.testing.assert_allclose(look.target_q, jnp.minimum(*both), rtol=1e-5)
    alone = policy.network.look(policy.params, tokens, jnp.ones((2, 6), bool))
    np.testing.assert_allclose(look.logits, alone.logits, rtol=1e-4, atol=1e-5)
    assert alone.values is None


def test_targets_follow_and_heads_learn(valued: Path) -> None:
    agent = agent_folder.load(valued)
    online, target = agent.params["heads"]["q1"]["output"], agent.params["target_heads"]["q1"]["output"]
    apart = np.abs(online["kernel"] - target["kernel"]).max()
    # Four steps of Adam at 1e-2 go 0.04 at most, of which targets have gone next to nothing.
    assert 0.01 < apart < 0.05
    trunks = agent.params["trunks"]
    assert np.abs(trunks["values"]["embedding"] - trunks["target"]["embedding"]).max() > 0.01


def test_a_stream_is_learned_from_too(tmp_path: Path) -> None:
    run = train(tmp_path, "bc", max_steps=2)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["validation/loss"] for row in rows if "validation/loss" in row]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("psi", {}, "config.initial.policy=None: method psi"),
        ("ilql", {"loss.policy": 0.0}, "config.loss.policy=0"),
        ("bc", {"loss.policy": 0.0}, "config.loss.policy=0.0: must be above 0"),
        ("ilql", {"initial.policy": "/nowhere"}, "config.initial.policy=/nowhere: must be the run folder"),
        ("ilql", {"data": "/nowhere"}, "config.data=/nowhere: must be a folder of collect_text"),
        ("ilql", {"options": "3"}, "config.options=3: must be a JSON object"),
        ("ilql", {"method.name": "dqn"}, "config.method.name=dqn: must be one of bc, "),
        ("ilql", {"max_len": 40}, "config.max_len=40: must be at most 16"),
        ("ilql", {"filter.top": 0.5}, "must be 1 without config.data"),
        ("ilql", {"batch_size": 9, "accumulate": 2}, "config.batch_size=9: must be a multiple of 2"),
        ("ilql", {"kind": "tweets"}, "config.kind='tweets': must be one of games"),
        ("ilql", {"method.expectile": 1.5}, "config.method.expectile=1.5"),
        ("ilql", {"lora.patterns": "*/nothing"}, "*/nothing"),
        ("ilql", {"method.q_min": 1.0, "method.q_max": 0.0}, "config.method.q_min=1.0: must be below"),
    ],
)
def test_bad_values_are_refused_in_one_line(tmp_path: Path, method: str, changes: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        stage.check(config_of(method, **changes), tmp_path / "run")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_max_len_has_to_leave_an_action(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UserError, match=r"config.max_len=5: must be at least 8"):
        stage.check(config_of("bc", data=str(data), max_len=5), tmp_path / "run")


def test_runs_of_other_tokens_are_refused(tmp_path: Path, cloned: Path) -> None:
    with pytest.raises(UserError, match="was trained with other tokens than the task wordle"):
        stage.check(
            config_of("ilql", task="wordle", policy="random", **{"initial.policy": str(cloned)}), tmp_path
        )
    copy = shutil.copytree(cloned, tmp_path / "copy")
    shutil.rmtree(copy / "agent")
    with pytest.raises(UserError, match="its training has not ended"):
        stage.check(config_of("ilql", **{"initial.policy": str(copy)}), tmp_path / "run")
