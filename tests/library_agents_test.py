"""Agents of the library: they act in one environment and in many, are paid as they learned, and the
pages' examples run.
"""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FilterObservation

from motif_jax import agents, wrappers
from motif_jax.core.errors import UserError
from motif_jax.lm import byte_pairs
from motif_jax.play import evaluation_setup
from tests import text_agents
from tests.lm import models
from tests.play import untrained
from tests.processes import REPOSITORY


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    reward = {
        "reward.dir": str(trained),
        "reward.quantile": 0.05,
        "reward.intrinsic_coefficient": 0.3,
    }
    untrained.write(folder, "smoke", reward, {7: 1.0})
    return folder


@pytest.mark.extra
def test_an_episode_is_paid_as_evaluation_rates_it(agent: Path) -> None:
    lineup = evaluation_setup.open_setup(evaluation_setup.of_folder(agent))
    (record,) = agents.play(agent, 1, seed=3, workers=1)
    env = wrappers.IntrinsicReward.of_agent(agents.load(agent).make_env(), agent)
    env.reset(seed=record.seed)
    steps = [env.step(int(action))[-1]["reward_parts"] for action in record.actions]
    paid = {name: np.array([step[name] for step in steps]) for name in steps[0]}
    rated = lineup.rater.rate(record)
    np.testing.assert_allclose(paid["intrinsic"], rated.uncounted, atol=1e-6)
    np.testing.assert_allclose(paid["counted"], rated.discounted, atol=1e-6)
    np.testing.assert_array_equal(paid["extrinsic"], record.rewards)
    assert np.unique(rated.uncounted).size > 1
    total = 0.1 * np.clip(0.1 * record.rewards, -10, 10) + 0.3 * rated.discounted
    np.testing.assert_allclose(paid["total"], total, atol=1e-6)


@pytest.mark.slow
def test_an_agents_reward_is_paid_in_environments_without_counts(agent: Path) -> None:
    """The same episode with the field that has them and without, and NLE's own environment."""
    import nle  # noqa: F401 (registers its environments)

    paid = []
    player = agents.load(agent)
    for env in (player.make_env(), FilterObservation(player.make_env(), ("message",))):
        wrapped = wrappers.IntrinsicReward.of_agent(env, agent)
        wrapped.reset(seed=3)
        paid.append([wrapped.step(step % 9)[-1]["reward_parts"] for step in range(40)])
        wrapped.close()
    assert paid[0] == paid[1]
    assert max(part["visits"] for part in paid[0]) > 1
    one = gymnasium.make("NetHackScore-v0")
    many = SyncVectorEnv([lambda: gymnasium.make("NetHackScore-v0")])
    for wrapper, inner in ((wrappers.IntrinsicReward, one), (wrappers.VectorIntrinsicReward, many)):
        env = wrapper.of_agent(inner, agent)
        env.reset(seed=1)
        assert "reward_parts" in env.step(env.action_space.sample())[-1]
        env.close()


@pytest.mark.parametrize(("size", "paid"), [(256, 0.5), (9, 0.0)])
def test_an_agent_of_gymnasium_is_paid_in_the_plain_environment(
    tmp_path: Path, size: int, paid: float
) -> None:
    """By the whole text, and by its first nine bytes, which are of no entry of the table."""
    (tmp_path / "table.json").write_text('{"You stand still.": 1.0}')
    changes = {
        "environment.text_bytes": size,
        "environment.name": "gym:ToyVault-v0",
        "environment.modules": "tests.gym_toys",
        "environment.text": "info:said",
        "reward.kind": "table",
        "reward.table": str(tmp_path / "table.json"),
        "reward.intrinsic_coefficient": 0.5,
        "reward.extrinsic_coefficient": 0.0,
    }
    agent = tmp_path / "agent"
    untrained.write(agent, "gym", changes, {7: 1.0})

    env = wrappers.IntrinsicReward.of_agent(
        gymnasium.make("ToyVault-v0"), agent, trust=["tests.gym_toys"]
    )

    env.reset(seed=1)
    steps = [env.step(action) for action in (3, 2, 2, 1)]
    env.close()
    # As in training with `:gym`: a text is paid with the step that led to it.
    assert [step[-1]["said"] for step in steps] == ["You stand still.", "", "", ""]
    assert [step[1] for step in steps] == [paid, 0.0, 0.0, 0.0]


def test_an_observation_that_the_agent_cannot_have_seen_is_refused(tmp_path: Path) -> None:
    changes = {
        "environment.name": "MiniGrid-DoorKey-5x5-v0",
        "reward.intrinsic_coefficient": 0.0,
    }
    untrained.write(tmp_path, "minigrid", changes, {7: 1.0})
    player = agents.load(tmp_path)
    env = player.make_env()
    observation, _ = env.reset(seed=0)
    many = {name: np.stack([array] * 2) for name, array in observation.items()}
    halves = observation["view"] / 2
    for arguments, line in (
        ({"observations": {**observation, "view": halves}}, "'view' has numbers"),
        ({"observations": {**observation, "view": np.float32(np.nan) * halves}}, "not finite"),
        ({"observations": {**observation, "view": halves.astype(str)}}, "no numbers"),
        ({"observations": {**many, "view": many["view"][:1]}}, "different numbers of environments"),
        ({"observations": many, "first": [True]}, r"first has shape \[1\]"),
        ({"observations": observation, "first": [True, False]}, r"first has shape \[2\]"),
    ):
        with pytest.raises(UserError, match=line):
            player.act(**arguments)
    # Whole numbers of another type are the same numbers.
    wide = {name: array.astype(np.float64) for name, array in observation.items()}
    _, state = player.act(wide, greedy=True)
    _, same = player.act(observation, greedy=True)
    np.testing.assert_array_equal(state.probabilities, same.probabilities)


@pytest.mark.slow
def test_an_agent_acts_for_one_and_for_many(agent: Path) -> None:
    player = agents.load(agent)
    assert player.checkpoint == 7
    env = player.make_env()
    observation, _ = env.reset(seed=0)
    action, state = player.act(observation, greedy=True)
    assert env.action_space.contains(action)
    assert action == state.probabilities.argmax()
    assert state.probabilities.sum() == pytest.approx(1, abs=1e-5)
    second, _, _, _, _ = env.step(action)
    _, after = player.act(second, state, greedy=True)
    both = {name: np.stack([observation[name], second[name]]) for name in observation}
    actions, many = player.act(both, greedy=True)
    assert actions.shape == (2,)
    np.testing.assert_allclose(many.probabilities[0], state.probabilities, atol=1e-5)
    # Of the second the state makes a difference: it was forgotten here.
    _, again = player.act(second, state, first=True, greedy=True)
    np.testing.assert_allclose(many.probabilities[1], again.probabilities, atol=1e-5)
    assert np.isfinite(after.values)
    shaped = {name: array[..., None] for name, array in observation.items()}
    for arguments, line in (
        ((both, state), "begin with state=None"),
        (({},), "no field"),
        (({name: array[None][:0] for name, array in observation.items()},), "of 0 environments"),
        ((shaped,), "shape"),
    ):
        with pytest.raises(UserError, match=line):
            player.act(*arguments)
    env.close()


@pytest.mark.extra
def test_the_examples_of_the_pages_run(
    agent: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = agent.parent / "runs"
    runs.mkdir()
    (runs / "quickstart").mkdir()
    for folder in (runs, runs / "quickstart"):
        (folder / "agent").symlink_to(agent)
        (folder / "reward").symlink_to(trained)
    byte_pairs.save(
        runs / "tokens", byte_pairs.train(["My parcel has not come."], "gpt2", 300), "gpt2"
    )
    text_agents.write(runs / "ilql", task="dialogues", options={"tokenizer": str(runs / "tokens")})
    models.write(agent.parent / "FOLDER", "gpt2")
    (agent.parent / "FOLDER" / "tokenizer.json").write_text(models.tokenizer())
    template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    )
    (agent.parent / "FOLDER" / "chat_template.jinja").write_text(template)
    monkeypatch.chdir(agent.parent)
    counts = {
        "README.md": 1,
        "docs/library.md": 6,
        "docs/environments.md": 1,
        "docs/language.md": 2,
    }
    for page, least in counts.items():
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
        assert len(examples) >= least
        scope = {"__name__": "__main__"}
        for example in examples:
            if "motif_jax.run(" in example:  # in tests/running_test.py
                continue
            exec(example.replace("20, seed=7", "2, seed=7, workers=1"), scope)
    assert scope["page"].startswith("<!DOCTYPE html>")
