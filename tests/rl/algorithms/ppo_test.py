"""PPO against the published collector and updater, and by what it promises."""

from __future__ import annotations

import csv

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.glam.training_hooks import FILE, GlamLog
from motif_jax.nets import distributions
from motif_jax.rl.algorithms import ppo, total_reward
from tests.conftest import load_golden

GOLDEN = load_golden("glam_ppo.json")


def array(values, dtype=np.float32):
    return jnp.asarray(np.array(values, dtype))


@pytest.mark.parametrize("number", range(len(GOLDEN["rollouts"])))
def test_targets_are_those_of_the_published_collector(number):
    case = GOLDEN["rollouts"][number]
    reward, done, value = (array(case[name]) for name in ("env_rewards", "dones", "values"))
    assert value.shape == (case["steps"], case["num_envs"])
    shaped = total_reward.scale_reward(reward, 20.0, 100.0)
    np.testing.assert_allclose(shaped, case["shaped_rewards"], rtol=1e-6)
    # Published: a timeout ends like any other end, so that no row carries a last value.
    discount = case["gamma"] * (1 - done)
    last = jnp.zeros(done.shape, bool)
    rows = (value, array(case["bootstrap_values"]), shaped, discount, last)
    targets = jax.jit(ppo.targets, static_argnums=5)(*rows, case["lam"])
    np.testing.assert_allclose(targets.advantage, case["advantages"], rtol=1e-4, atol=1e-5)
    by_environment = (targets.advantage, targets.value, shaped)
    for name, rows in zip(
        ("flat_advantage", "flat_returns", "flat_reward"), by_environment, strict=True
    ):
        np.testing.assert_allclose(np.asarray(rows).T.reshape(-1), case[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", sorted({case["case"] for case in GOLDEN["rollouts"]}))
def test_the_log_of_episodes_is_that_of_the_published_collector(number, tmp_path):
    """Also where fewer episodes ended than there are environments, and where some had begun in the
    call before.
    """
    calls = [case for case in GOLDEN["rollouts"] if case["case"] == number]
    environments = calls[0]["num_envs"]
    log = GlamLog(tmp_path, environments, 20.0, (0.5, 0.01))
    metrics = "loss/policy loss/value policy/entropy value/mean optimizer/gradient_norm".split()
    returns = np.zeros(environments)
    lengths = np.zeros(environments)
    for update, call in enumerate(calls):
        for reward, done in zip(call["env_rewards"], call["dones"], strict=True):
            returns = returns + reward
            lengths = lengths + 1
            ended = np.flatnonzero(done)
            log.add([{"return": returns[env], "length": lengths[env]} for env in ended])
            returns[ended] = lengths[ended] = 0
        log.write(update, 0, 0.0, dict.fromkeys(metrics, 0.0))
    log.close()
    with (tmp_path / FILE).open() as file:
        rows = list(csv.DictReader(file))
    episodes = np.cumsum([call["log"]["episodes_done"] for call in calls])
    assert [int(row["episodes"]) for row in rows] == episodes.tolist()
    for row, call in zip(rows, calls, strict=True):
        for name in (
            "return_per_episode", "reshaped_return_per_episode", "reshaped_return_bonus_per_episode", "num_frames_per_episode",
        ):  # fmt: skip
            published = np.array(call["log"][name])
            name = name.removesuffix("_per_episode")
            for statistic in ("mean", "std", "min", "max"):
                wanted = getattr(published, statistic)()
                assert float(row[f"{name}_{statistic}"]) == pytest.approx(
                    wanted, rel=1e-5, abs=1e-6
                )


def test_shaped_rewards():
    for reward, (shaped, bonus) in GOLDEN["reward_shaping"]:
        # Below 0 a reward counts as 0 (`algorithm.positive_reward`); no level of the games takes
        # anything away.
        assert float(total_reward.scale_reward(max(reward, 0.0), 20.0, 20.0)) == pytest.approx(
            shaped
        )
        assert bonus == 0


@pytest.mark.parametrize("form", ["as_published", "fed_column_vectors"])
@pytest.mark.parametrize(
    "number",
    [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, len(GOLDEN["ppo_loss"])))],
)
def test_loss_gradient_and_step_of_the_published_updater(number, form):
    case = GOLDEN["ppo_loss"][number]
    wanted = case[form]
    batch = case["batch"]
    group = (
        (lambda x: ppo.with_rows_of_block(x, batch)) if form == "as_published" else (lambda x: x)
    )
    samples = ppo.Samples(
        action=array(case["actions"], np.int32),
        behaviour_log_prob=array(case["old_log_probs"]),
        behaviour_value=group(array(case["old_values"])),
        advantage=array(case["advantages"]),
        target=group(array(case["returns"])),
        valid=jnp.ones(batch, bool),
    )
    params = {"scores": array(case["scores"]), "values": array(case["values"]).reshape(-1)}

    def loss(params):
        scores = params["scores"]
        rows = ppo.step_losses(
            distributions.categorical_log_prob(scores, samples.action),
            distributions.categorical_entropy(scores),
            params["values"],
            samples,
            case["clip_eps"],
            case["clip_eps"],
        )
        loss_of_row = ppo.combine(rows, case["value_loss_coef"], case["entropy_coef"])
        return loss_of_row.mean(), ppo.describe(rows, samples.valid, case["clip_eps"])

    (value, terms), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(value, wanted["loss"], rtol=1e-5)
    np.testing.assert_allclose(terms["policy/entropy"], wanted["entropy"], rtol=1e-5)
    np.testing.assert_allclose(terms["loss/policy"], wanted["policy_loss"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(terms["loss/value"], wanted["value_loss"], rtol=1e-5)
    norm = optax.tree.norm(gradient)
    np.testing.assert_allclose(norm, wanted["grad_norm"], rtol=1e-4)
    clipped, _ = optax.clip_by_global_norm(case["max_grad_norm"]).update(
        gradient, optax.EmptyState()
    )
    optimizer = optax.adam(case["lr"], *case["betas"], eps=case["adam_eps"])
    change, _ = optimizer.update(clipped, optimizer.init(params))
    after = optax.apply_updates(params, change)
    for name, slope, end in (
        ("scores", "grad_scores_after_clip", "scores_after_adam"),
        ("values", "grad_values_after_clip", "values_after_adam"),
    ):
        shape = params[name].shape
        np.testing.assert_allclose(
            clipped[name], np.reshape(wanted[slope], shape), rtol=1e-3, atol=1e-6
        )
        np.testing.assert_allclose(
            after[name], np.reshape(wanted[end], shape), rtol=1e-5, atol=1e-6
        )
