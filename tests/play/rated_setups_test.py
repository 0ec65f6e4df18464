from __future__ import annotations

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from motif_jax import agents, rewards, wrappers
from motif_jax.core.errors import UserError
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.recording import record_actions
from motif_jax.envs.registry import spec
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.reward.reward_model import read_run
from motif_jax.motif.reward.safetensors_file import write_safetensors
from motif_jax.play import watching
from motif_jax.play.config import PlayedPolicy
from motif_jax.play.evaluation_setup import PinnedVersions, check, of_folder, open_setup
from motif_jax.play.ratings import LiveRaters, RatingReward
from motif_jax.rl.actors.episodes import PlaySettings, play_episodes
from motif_jax.rl.config import AgentReward
from motif_jax.schema import read_section
from tests.play import untrained
from tests.reward_fixtures import load_config, make_dataset, reward_config, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A reward of the message, one that reads the status line and the map too, both with
    evaluations 0 and 1.
    """
    folder = tmp_path_factory.mktemp("runs")
    make_dataset(folder / "dataset", pairs=60, glyphs=True)
    small = {"network.hidden_dim": 16}
    train(folder / "text", reward_config(folder / "dataset", **small))
    more = {"network.status": True, "network.glyphs": True, "network.embedding_dim": 4}
    train(folder / "more", reward_config(folder / "dataset", **small, **more))
    return folder


@pytest.fixture
def texts(runs):
    return np.unique(PairsDataset.open(runs / "dataset").data["message"].reshape(-1, 256), axis=0)


def agent_run(folder, reward, **changes):
    named = {"reward.dir": str(reward), "reward.intrinsic_coefficient": 0.1, "reward.quantile": 0.3}
    untrained.write(folder, "recall", named | changes)
    return str(folder)


def evaluate_config(**changes):
    return read_section(PlayedPolicy, load_config("evaluate", "smoke", changes))


def rated(who, texts):
    steps = np.arange(len(texts))
    return who.rater.rate(PlayedEpisode(0, 0, steps, steps, 1, {}, texts, steps, 1 + steps))


def test_the_evaluation_of_the_reward_is_resolved_and_pinned(runs, texts):
    config = evaluate_config(**{"reward.dir": str(runs / "text")})
    assert open_setup(config).plan["reward"]["step"] == 1
    pinned = open_setup(config, PinnedVersions(reward_step=0))
    assert pinned.plan["reward"]["step"] == 0
    first = pinned.reward.load(pinned.spec).lookup(texts).values
    np.testing.assert_array_equal(first, rewards.load(runs / "text", 0).intrinsic(texts))
    assert not np.array_equal(first, rewards.load(runs / "text", 1).intrinsic(texts))


def test_a_retrained_agent_is_not_the_one_of_the_start(runs, tmp_path):
    agent = agent_run(tmp_path / "agent", runs / "text")
    begun = open_setup(evaluate_config(policy=agent))
    pins = PinnedVersions(100, begun.reward.section.step, begun.digests)
    assert open_setup(evaluate_config(policy=agent), pins).digests == begun.digests
    shutil.rmtree(agent)
    agent_run(tmp_path / "agent", runs / "text")
    with pytest.raises(UserError, match="was trained or written again since the run"):
        open_setup(evaluate_config(policy=agent), pins)
    open_setup(evaluate_config(policy=agent), PinnedVersions(100, begun.reward.section.step))


@pytest.mark.extra
def test_two_rewards_in_one_folder_have_different_digests(runs, tmp_path):
    file = tmp_path / "reward.safetensors"
    rewards_digests = []
    for evaluation in (0, 1):
        write_safetensors(read_run(runs / "text", evaluation), file)
        places = runs / "text", file
        rewards_digests += [
            rewards.digest(AgentReward(dir=str(folder), step=evaluation)) for folder in places
        ]
    assert len({*rewards_digests} - {None}) == 4
    assert rewards.digest(AgentReward(dir=str(runs / "text"), step=1)) == rewards_digests[2]
    assert rewards.digest(AgentReward()) is None


@pytest.mark.extra
def test_a_folder_named_like_a_policy_is_a_folder(runs, tmp_path, monkeypatch):
    folder = agent_run(tmp_path / "agent", runs / "text")
    monkeypatch.chdir(tmp_path)
    for name in ("random", "bot"):
        (tmp_path / name).symlink_to(folder)
    for name in ("agent", "random", "bot"):
        agent = agents.load(name)
        assert agent.checkpoint == 100
        assert repr(agent) == f"Agent({name!r}, checkpoint=100, environment={agent.environment!r})"
        who = open_setup(of_folder(name))
        assert (who.checkpoint, who.plan["policy"], who.reward.section.quantile) == (100, name, 0.3)
        assert not who.policy.in_workers
    with pytest.raises(UserError, match="random: no agent of a run plays here"):
        agents.Agent("random", open_setup(evaluate_config()), 0)


def test_a_task_without_counts_pays_what_its_training_paid(runs, texts, tmp_path):
    task = {"environment.name": "tests.toys:Talker", "reward.count_exponent": 3.0}
    agent = agent_run(tmp_path / "agent", runs / "text", **task)
    who = open_setup(evaluate_config(policy=agent))
    assert who.reward.section.count_exponent == 3.0
    ratings = rated(who, texts)
    assert ratings.uncounted.any()
    np.testing.assert_array_equal(ratings.discounted, ratings.uncounted)
    assert who.live_rater().count_exponent == 0
    env = wrappers.IntrinsicReward.of_agent(agents.load(agent).make_env(), agent)
    env.reset(seed=0)
    parts = [env.step(0)[-1]["reward_parts"] for _ in range(29)]
    assert any(part["visits"] > 1 and part["intrinsic"] for part in parts)
    assert [part["counted"] for part in parts] == [part["intrinsic"] for part in parts]
    counted = agent_run(tmp_path / "counted", runs / "text")
    assert open_setup(evaluate_config(policy=counted)).live_rater().count_exponent == 3


@pytest.mark.extra
def test_the_threshold_is_rounded_where_the_agents_was(runs, texts, tmp_path):
    trained = read_run(runs / "text")
    raw = trained.of_messages(trained.params, texts)

    def paid(quantile, rounded):
        return trained.normalisation(True, quantile, rounded)(raw)

    levels = [q for q in rewards.QUANTILE_LEVELS if (paid(q, True) != paid(q, False)).any()]
    assert levels, "a quantile where the two thresholds tell messages apart"
    for switch in (True, False):
        changes = {"reward.quantile": levels[0], "compat.quantile_two_decimals": switch}
        agent = agent_run(tmp_path / f"agent-{switch}", runs / "text", **changes)
        who = open_setup(evaluate_config(policy=agent))
        expected = paid(levels[0], switch)
        live = who.live_rater()
        np.testing.assert_allclose([live(text, {}).paid for text in texts], expected, rtol=1e-5)
        np.testing.assert_allclose(rated(who, texts).uncounted, expected, rtol=1e-5)


def test_a_reward_of_several_fields_rates_episodes_and_films(runs):
    changes = {
        "environment.max_episode_steps": 90,
        "reward.dir": str(runs / "more"),
        "reward.quantile": None,
    }
    who = check(evaluate_config(**changes))
    assert who.options["fields"] == ["glyphs"]
    assert who.rater.fields == ("message", "blstats", "glyphs")
    how = PlaySettings(workers=1, keep_fields=who.rater.fields)
    (record,) = play_episodes(who.environment, who.options, [5], who.policy, how)
    rating = who.rater.rate(record)
    reward = who.reward.load(who.spec)
    rows = {name: record.fields[name][:, None] for name in who.rater.fields}
    expected = np.asarray(jax.jit(reward.in_step)(reward.params, rows))[:, 0]
    np.testing.assert_allclose(rating.uncounted, expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(rating.discounted, rating.uncounted / record.text_count**3.0)

    recording = record_actions(who.environment, who.options, 5, record.actions)
    rater = who.live_rater()
    film = watching.film_recording(recording, "t", None, lambda spec: rater, who.options["fields"])
    np.testing.assert_allclose(film.intrinsic[:-1], rating.discounted, rtol=2e-3, atol=2e-4)
    assert len(film.texts) > len(set(film.texts)), "one message pays differently on other screens"
    np.testing.assert_array_equal(film.text_count[:-1], record.text_count)
    np.testing.assert_array_equal(film.paid[film.text_index], film.normalised[film.text_index])
    with pytest.raises(
        UserError, match=r"must be a reward that reads what Recall-v0 shows, not .*glyphs"
    ):
        check(
            evaluate_config(**{"environment.name": "Recall-v0", "reward.dir": str(runs / "more")})
        )


def test_games_of_two_environments_have_raters_of_their_own() -> None:
    counting = spec(load_config("train_agent", "recall").environment.name)
    plain = dataclasses.replace(counting, count_field=None)
    section = read_section(AgentReward, load_config("train_agent", "recall").reward)
    raters = LiveRaters(
        RatingReward(dataclasses.replace(section, kind="any_text", count_exponent=3.0))
    )

    assert raters.of(counting).count_exponent == 3.0
    assert raters.of(plain).count_exponent == 0.0
    assert raters.of(dataclasses.replace(counting)) is raters.of(counting)
