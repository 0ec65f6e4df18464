"""Published checkpoints, written with the golden weights, give the golden outputs."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.motif.reward.reward_model import read_run
from motif_jax.play.agent_policy import load as load_agent
from motif_jax.published import imports
from tests import torch_files
from tests.agents import observation_of
from tests.golden_numbers import recipe_tensors
from tests.reward_fixtures import load_config, run_config


def foreign(name: str, number: int) -> str:
    """A name that says nothing of ours."""
    layer, kind = name.split("/")
    if layer == "reward_head":
        return f"heads.reward.{kind}"
    return f"encoder.parts.{(number + 1) // 2}.{kind}"


def write_reward(path, golden, **more):
    named = recipe_tensors(golden("weight_shapes.json")["reward"])
    model = {foreign(name, number): array for number, (name, array) in enumerate(named.items())}
    rng = np.random.default_rng(0)
    for name, shape in {"heads.critic.weight": (1, 512), "heads.critic.bias": (1,), "heads.p.weight": (23, 512),
                        "heads.p.bias": (23,)}.items():  # fmt: skip
        model[name] = rng.normal(size=shape).astype("f")
    statistics = {"reward_mean": np.float32([0.25]), "reward_var": np.float64(4.0)}
    content = {"model": model, "num_iter": 7, **statistics}
    return torch_files.write(path, {**content, **more})


def config_for(variant, path, **values):
    return load_config("import", variant, {"file": str(path), **values})


@pytest.mark.torch
@pytest.mark.slow
def test_a_reward_gives_the_golden_rewards(golden, tmp_path, capsys):
    path = write_reward(tmp_path / "checkpoint_7.pth", golden)
    levels = np.linspace(-1, 1, 19)
    (tmp_path / "q.csv").write_text(
        ",".join(f"{0.05 * i:.2f}" for i in range(1, 20)) + "\n"
        + ",".join(f"{v - 1:.2f}" for v in levels) + "\n" + ",".join(f"{v:.2f}" for v in levels) + "\n"
    )  # fmt: skip
    config = config_for("motif_reward", path, quantiles=str(tmp_path / "q.csv"))
    workdir = run_config(config, tmp_path / "run")
    g = golden("reward_forward.npz")
    for target in (workdir, workdir / "model.safetensors"):
        reward = rewards.load(target)
        np.testing.assert_allclose(reward.raw(g["messages"]), g["reward"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            reward(g["messages"]), (g["reward"] - 0.25) / 2, rtol=1e-5, atol=1e-5
        )
    trained = read_run(workdir)
    assert trained.step == 7
    assert trained.normalisation(True, 0.5).threshold == 0.0
    assert trained.normalisation(True, 0.95).threshold == 1.0
    capsys.readouterr()
    run_config(config, workdir)
    assert "holds this import" in capsys.readouterr().out
    config.quantile_row = 0
    with pytest.raises(UserError, match=r"holds another import \(quantile_row: -1 before, 0 now\)"):
        imports.check(config, workdir)


@pytest.mark.torch
@pytest.mark.slow
def test_absent_statistics_are_asked_for(golden, tmp_path):
    """0 and 1 would be taken for a reward's own: its normalisation would be wrong in silence."""
    path = write_reward(tmp_path / "a.pth", golden, reward_mean=None)
    with pytest.raises(UserError, match=r"has no reward_mean, .*--config\.mean=NUMBER"):
        imports.run(config_for("motif_reward", path), tmp_path / "run")
    assert not (tmp_path / "run" / "import.json").exists()
    run = run_config(config_for("motif_reward", path, mean=3.5), tmp_path / "run")
    assert read_run(run).statistics["mean"] == 3.5


@pytest.mark.torch
@pytest.mark.slow
def test_an_agent_gives_the_golden_logits(golden, tmp_path):
    named = recipe_tensors(golden("weight_shapes.json")["actor_critic"])
    numbered = enumerate(named.items())
    model = {f"net.{number}.{name.split('/')[1]}": array for number, (name, array) in numbered}
    path = torch_files.write(tmp_path / "agent.pth", {"model": model, "env_steps": 12345})
    run_config(config_for("motif_agent", path), tmp_path / "run")
    policy, step = load_agent(tmp_path / "run")
    assert step == 12345
    g = golden("actor_critic_step.npz")
    observation = observation_of(g["image"], g["blstats_features"], g["message"])
    first = np.zeros(len(g["state_in"]), bool)
    logits, value, _ = policy.act(observation, first, g["state_in"])
    np.testing.assert_allclose(logits, g["logits"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, g["value"], rtol=1e-5, atol=1e-5)


@pytest.mark.torch
@pytest.mark.slow
def test_a_network_of_another_width_is_refused(golden, tmp_path):
    path = write_reward(tmp_path / "a.pth", golden)
    width = {"reward.network.hidden_dim": 64}
    with pytest.raises(ValueError, match=r"is needed \d+ times, the file has it"):
        run_config(config_for("motif_reward", path, **width), tmp_path / "r")


def test_a_kind_without_its_variant_is_refused(tmp_path):
    config = config_for("reward", tmp_path / "a.pth", kind="motif_agent")

    with pytest.raises(UserError, match=r"^config\.kind='motif_agent': must be that of the config"):
        imports.check(config, tmp_path / "run")


def test_a_folder_of_another_kind_of_import_is_refused(tmp_path):
    path = tmp_path / "a.pth"
    path.touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "import.json").write_text('{"stage": "import", "kind": "ilql"}')

    with pytest.raises(UserError, match=r"belongs to import:ilql, this is import:motif_reward"):
        imports.check(config_for("motif_reward", path), tmp_path / "run")
