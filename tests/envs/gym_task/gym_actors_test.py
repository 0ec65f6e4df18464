"""Gymnasium's environments in worker processes: those that die, and those that raise."""

from __future__ import annotations

import types

import pytest

from motif_jax.actors import worker_process
from motif_jax.datasets.pairs import chunks
from motif_jax.envs.spec import EngineError
from motif_jax.rollouts import sampling
from motif_jax.rollouts.policies import RandomPolicy
from motif_jax.rollouts.sampling import EpisodeJob, SamplingPlan
from tests.envs.playing import started


def test_an_episode_whose_environment_dies_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "MAX_DEATHS", 1)
    plan = SamplingPlan(
        environment="gym:ToyMortal-v0",
        options={"modules": "tests.gym_toys", "text": "tests.gym_toys:praise"},
        fields=("message",), seed=1, length=1, share=1.0, folder=str(tmp_path), text="caption",
    )  # fmt: skip
    jobs = (EpisodeJob(index, seed, 0, RandomPolicy()) for index, seed in enumerate((3, 4, 5)))
    list(sampling.record(jobs, plan, 1, types.SimpleNamespace(requested=False)))
    assert chunks.scan(tmp_path) == {0: 30, 1: 0, 2: 30}


def test_an_error_of_the_environment_is_one_of_its_engine(monkeypatch):
    monkeypatch.setenv("MORTAL_RAISES", "1")
    environment, out = started("gym:ToyMortal-v0", 4, modules="tests.gym_toys")
    for _ in range(9):
        environment.step(1, out)
    with pytest.raises(EngineError, match="fails at step 9 with action 1") as told:
        environment.step(1, out)
    assert isinstance(told.value.__cause__, OSError)
