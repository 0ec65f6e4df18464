"""An environment and policies that stand outside the package, through the real flags."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.reports.evaluation_files import decode_actions, read_rows
from motif_jax.rollouts.episodes import PlaySettings, play_episodes
from motif_jax.rollouts.policies import RandomPolicy
from tests.refusals import refusal
from tests.reward_fixtures import launch, load_config, run_stage
from tests.toys import Flyer

CORRIDOR = "tests.toys:Corridor"
# Of an evaluation.
EPISODES = load_config("evaluate").episodes


def actions_of(folder):
    return [decode_actions(row["actions"]) for row in read_rows(folder / "episodes.jsonl")]


@pytest.mark.extra
@pytest.mark.usefixtures("compiled_quickly")
def test_an_agent_learns_plays_and_is_watched_in_an_environment_from_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")  # the command alone says what it trusts
    flags = [f"--config.environment.name={CORRIDOR}", "--config.compile_cache="]
    small = ["--config.algorithm.exploration=symmetric_kl", "--config.record_every=3"]
    launch("train_agent", tmp_path / "agent", *flags, *small)
    last = json.loads((tmp_path / "agent" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < last["policy/entropy"] <= np.log(3), "at most three actions are possible"
    assert 0 <= last["loss/exploration"] < 1
    assert list((tmp_path / "agent" / "recordings").glob("*.json"))

    more = [*flags, *small, f"--config.train_for_env_steps={2 * last['step']}"]
    launch("train_agent", tmp_path / "agent", *more)  # the run's own command continues with it

    agent = f"--config.policy={tmp_path / 'agent'}"
    trusted = [agent, f"--config.trust={CORRIDOR}", "--config.show_best=1"]
    launch("evaluate", tmp_path / "evaluation", *trusted)
    taken = actions_of(tmp_path / "evaluation")
    assert len(taken) == EPISODES
    assert all(set(actions) <= {0, 1, 2} for actions in taken)
    monkeypatch.undo()
    values = {"policy": str(tmp_path / "agent")}
    run_stage("evaluate", tmp_path / "twin", **{**values, "environment.name": "tests.toys:TwinCorridor"})
    assert len(actions_of(tmp_path / "twin")) == EPISODES
    for other in ("tests.toys:LongCorridor", "NetHackScore-v1"):
        name = f"--config.environment.name={other}"
        refused = refusal("evaluate.py:smoke", tmp_path / "other", agent, name)
        assert refused.startswith(f"config.environment.name='{other}': must be {CORRIDOR}")

    run_stage("visualize", tmp_path / "film", **{**values, "forms.gif": True})
    page = (tmp_path / "film" / "episode-00000.html").read_text()
    assert '"columns": 6' in page or '"columns":6' in page
    assert "right" in page
    assert (tmp_path / "film" / "episode-00000.gif").exists()


def test_masks_are_kept_by_policies_of_both_kinds():
    for policy, possible in ((RandomPolicy(), {0, 1, 2}), (Flyer(registry.spec(CORRIDOR)), {0, 1, 2})):
        episodes = list(play_episodes(CORRIDOR, {}, range(20), policy, PlaySettings(workers=1, lanes=4)))
        taken = np.concatenate([episode.actions for episode in episodes])
        assert set(taken.tolist()) == possible, "the environment refuses others"
    assert all(episode.values is None for episode in episodes), "a policy without values"
