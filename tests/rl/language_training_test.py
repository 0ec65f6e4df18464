"""Language agents whose model is more than a device wants: split over several, or frozen under
low-rank additions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from motif_jax.core import run_folder
from motif_jax.core.devices.sharding import Sharded
from motif_jax.core.errors import UserError
from motif_jax.core.metrics import read_metrics
from motif_jax.play import agent_policy
from motif_jax.rl import settings, train_agent
from tests.lm import talkers
from tests.reward_fixtures import load_config
from tests.rl.runs import train

STEPS = 128
PATTERNS = "*/attention/query,*/attention/value"
LORA = {"lora.patterns": PATTERNS, "lora.rank": 2, "optimizer.learning_rate": 1e-2}


def config(tmp_path: Path, **changes: Any) -> Any:
    model = str(talkers.write(tmp_path / "model"))
    small = {
        "network.model": model, "network.prompt_tokens": 160, "probes.prompts": "",
        "devices.learner": "0", "train_for_env_steps": STEPS, "algorithm.epochs": 1,
    }  # fmt: skip
    return load_config("train_language_agent", "smoke", {**small, **changes})


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(jax.device_get(tree))[0])


@pytest.mark.extra
def test_a_split_model_learns_what_a_whole_one_does(tmp_path: Path) -> None:
    """Every kernel of attention and feed-forward lies in four parts on four devices; what is
    learned is compared by its change.
    """
    rate = {"optimizer.learning_rate": 1e-3}
    undivided = train(tmp_path / "whole", config(tmp_path, **rate))
    changes = {"sharding.fsdp": 2, "sharding.tensor": 2, "devices.learner": "0,1,2,3"}
    split = train(tmp_path / "split", config(tmp_path, **rate, **changes))
    assert undivided.system is not None
    assert split.system is not None
    assert isinstance(split.system.parallel, Sharded)
    state = split.system.learner.state
    leaves = jax.tree_util.tree_leaves_with_path((state.params["model"], state.opt_state))
    named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    kernels = [
        name for name in named if re.search(r"(attention|feed_forward).*\['kernel'\]$", name)
    ]
    assert len(kernels) > 3 * 15, "of the model, and of both moments of the optimiser"
    for name in kernels:
        assert len({str(shard.index) for shard in named[name].addressable_shards}) == 4, name
    start = undivided.system.network.init(jax.random.split(settings.random_key(1, "learner"))[0])
    learned = flat(undivided.system.learner.state.params)
    change = learned - flat(start)
    assert np.abs(change).max() > 1e-3
    assert np.linalg.norm(flat(state.params) - learned) < 0.02 * np.linalg.norm(change)
    rows = [list(read_metrics(tmp_path / name))[-1] for name in ("whole", "split")]
    for name in ("loss/value", "policy/entropy", "optimizer/gradient_norm"):
        assert rows[1][name] == pytest.approx(rows[0][name], rel=1e-3), name


@pytest.mark.extra
def test_additions_are_learned_and_stored_without_the_base(tmp_path: Path) -> None:
    """Processes in two groups are stepped in turns: every step is by the policy that learns from
    it.
    """
    changes = {**LORA, "lora.base": "int8", "serial": False, "actors.groups_per_worker": 2}
    training = train(tmp_path / "run", config(tmp_path, **changes))
    assert training.system is not None
    state = training.system.learner.state
    assert set(state.params) == {"additions", "heads"}
    leaves = jax.tree_util.tree_leaves_with_path(state.params["additions"])
    assert any(np.abs(leaf).max() > 0 for path, leaf in leaves if str(path[-1].key).endswith("b"))
    assert [row["lag/max"] for row in read_metrics(tmp_path / "run")][-1] == 0
    policy, _ = agent_policy.load(tmp_path / "run")
    assert {"additions", "heads", "model", "kernels"} == set(policy.params)
    jax.tree.map(
        np.testing.assert_array_equal, state.params["additions"], policy.params["additions"]
    )


@pytest.mark.extra
def test_a_base_that_has_changed_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = config(tmp_path, **LORA)
    train(run, first)
    talkers.write(tmp_path / "model", seed=1)

    message = (
        r"run was trained with a different base model than config.network.model=.* has now: restore"
    )
    with pytest.raises(UserError, match=message):
        agent_policy.load(run)
    longer = first.copy_and_resolve_references()
    longer.train_for_env_steps = 2 * STEPS
    with pytest.raises(UserError, match=f"--workdir=.*{message}"):
        train(run, longer)


@pytest.mark.extra
def test_dropout_while_playing_depends_on_no_other_row(tmp_path: Path) -> None:
    changes = {"network.pretrained": False, "compat.glam_untrained_dropout": True}
    run_folder.prepare(tmp_path, config(tmp_path, **changes), train_agent.IDENTITY)
    (tmp_path / "checkpoints").mkdir()
    policy, _ = agent_policy.load(tmp_path, "0")
    prompts = np.random.default_rng(0).integers(3, 20, (3, 12), np.int32)
    first = np.ones(2, bool)
    state = policy.initial_state(2)
    one, other = (
        policy.act({"tokens": prompts[rows]}, first, state)[0] for rows in ([0, 1], [0, 2])
    )
    np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.extra
def test_a_resumed_run_keeps_the_reference_and_its_coefficient(tmp_path: Path) -> None:
    kl = {"algorithm.kl.coefficient": 0.5, "algorithm.kl.target": 1.0, "algorithm.kl.horizon": 100}
    full = config(tmp_path, **LORA, **kl, log_every_seconds=1e-9)
    half = full.copy_and_resolve_references()
    half.train_for_env_steps = STEPS // 2

    stopped = train(tmp_path / "run", half)
    resumed = train(tmp_path / "run", full)

    assert stopped.system is not None
    assert resumed.system is not None
    reference = stopped.system.learner.state.reference
    state = resumed.system.learner.state
    # Of the base nothing is copied.
    assert set(state.reference) == {"additions", "heads"}
    jax.tree.map(np.testing.assert_array_equal, state.reference, reference)
    rows = list(read_metrics(tmp_path / "run"))
    assert rows[0]["reference/kl"] == pytest.approx(0, abs=1e-4)
    assert rows[-1]["reference/kl"] > 1e-4
    # Two updates of 64 steps, both far below the target.
    assert float(state.kl_coefficient) == pytest.approx(0.5 * (1 - 0.2 * 64 / 100) ** 2, rel=1e-3)
