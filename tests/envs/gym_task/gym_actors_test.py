"""Gymnasium's environments in actor processes: the same games whatever the number of workers, without jax, and what dies."""

from __future__ import annotations

import types

import numpy as np
import pytest

from motif_jax.actors import worker_process
from motif_jax.actors.inline import InlineActors
from motif_jax.actors.pool import ActorPool
from motif_jax.datasets.pairs import chunks
from motif_jax.envs import registry
from motif_jax.envs.spec import EngineError, empty_observation
from motif_jax.rollouts import sampling
from motif_jax.rollouts.policies import RandomPolicy
from motif_jax.rollouts.sampling import EpisodeJob, SamplingPlan
from tests.actors.pool_test import ROLLOUT, collect, config

OPTIONS = {"modules": "tests.gym_toys", "text": "info:said", "text_bytes": 32}


def test_games_do_not_depend_on_the_number_of_workers():
    def played(kind, workers):
        orders = config(env="gym:ToyVault-v0", options=OPTIONS, workers=workers, envs_per_group=2 // workers)
        with kind(orders) as actors:
            actors.start()
            groups = collect(actors, 4)
        return [
            {
                name: np.concatenate([groups[g][slot][name] for g in sorted(groups)], 1)
                for name in groups[0][slot]
            }
            for slot in range(4)
        ]

    seen = set()
    for one, two in zip(played(InlineActors, 1), played(ActorPool, 2), strict=True):
        for name in one:
            rows = slice(0, ROLLOUT if name in ("reward", "terminated", "truncated") else None)
            np.testing.assert_array_equal(one[name][rows], two[name][rows], err_msg=name)
        seen |= {bytes(text).rstrip(b"\0") for text in one["caption"].reshape(-1, 32)}
    assert {b"", b"The door is locked."} <= seen


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
    environment = registry.make("gym:ToyMortal-v0", modules="tests.gym_toys")
    out = empty_observation(environment.spec)
    environment.reset(4, out)
    for _ in range(9):
        environment.step(1, out)
    with pytest.raises(EngineError, match="fails at step 9 with action 1") as told:
        environment.step(1, out)
    assert isinstance(told.value.__cause__, OSError)
