"""A run that learned its reward is a reward like any other, at any of its checkpoints."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.motif.reward.reward_function import as_rows
from motif_jax.play import evaluation_setup
from motif_jax.published import exports
from motif_jax.rl.config import AgentReward
from tests.reward_fixtures import run_stage
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config
from tests.rl.runs import train

TEXTS = [*(f"the cue is {cue}" for cue in range(4)), "which cue?", "", "never met"]
TRAINING = {"batch_size": 8, "learning_rate": 1e-2}
SEVERAL = {**TRAINING, "members": 2, "deviations": 0.5}
KINDS: dict[str, dict[str, Any]] = {
    "retrieval": {"value": "probability"},
    "classification": {"encoder": "lt_cnn_small", "classifier": {"threshold": 0.3}, "training": SEVERAL},
    "ranking": {"encoder": "lt_cnn_small", "training": TRAINING},
}


def goes_through_a_file(run: Path, first: int, spec: Any) -> None:
    """Of each checkpoint a file pays what the run folder pays, in Python and as the reward of another training."""
    for step in (None, first):
        workdir = run.parent / f"{run.name}-file-{step}"
        run_stage("export_reward", workdir, "", **{"reward.dir": str(run), "reward.step": step})
        file = workdir / exports.REWARD
        assert "learned while the agent played" in (workdir / exports.CARD).read_text()
        from_run = rewards.load(run, step)
        from_file = rewards.load(file)
        assert from_file.trained.step == from_run.trained.step
        np.testing.assert_array_equal(from_file.raw(TEXTS), from_run.raw(TEXTS))
        for quantile in (0.5, None):
            np.testing.assert_array_equal(
                from_file.intrinsic(TEXTS, quantile), from_run.intrinsic(TEXTS, quantile)
            )
        other = rewards.load_intrinsic(AgentReward(dir=str(file)), spec)
        assert other is not None
        assert other.description.startswith(f"{file}, checkpoint {from_run.trained.step}, ")
        assert "quantile" not in other.description
        other.start()
        np.testing.assert_array_equal(other.lookup(as_rows(TEXTS)[0]).values, from_run.intrinsic(TEXTS))
    with pytest.raises(UserError, match=r"one that was learned online is used as the file"):
        run_stage("import_reward", workdir / "imported", "", file=str(file))
    file.write_bytes(file.read_bytes().replace(b"taken", b"token"))
    with pytest.raises(UserError, match="is damaged"):
        rewards.load(file)


@pytest.mark.extra
@pytest.mark.parametrize("kind", ["ranking", "retrieval", "classification"])
def test_it_pays_what_it_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    oni_runs.answer(monkeypatch)
    config = oni_config(kind, save_every_steps=200).unlock()
    config.reward.update(KINDS[kind])
    run = train(tmp_path, config.lock())
    assert run.system is not None
    assert run.system.reward is not None
    spec = registry.spec("Recall-v0")
    rows = as_rows(TEXTS)[0]
    later = rewards.load_intrinsic(AgentReward(dir=str(tmp_path)), spec)
    assert later is not None
    later.start()
    paid = later.lookup(rows).values
    np.testing.assert_array_equal(paid, run.system.reward.lookup(rows).values)
    assert paid.any()
    loaded = rewards.load(tmp_path)
    assert np.isfinite(loaded(TEXTS)).all()
    np.testing.assert_array_equal(loaded.intrinsic(TEXTS), paid)
    first = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit())[0]
    early = rewards.load(tmp_path, first).trained
    assert early.step == first
    assert sum(early.step_counts.values()) < sum(loaded.trained.step_counts.values())  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=f"has no checkpoint 7: it has {first} to"):
        rewards.load(tmp_path, 7)
    goes_through_a_file(tmp_path, first, spec)
    # Without a dataset it is explained by the messages that the run has met.
    page = tmp_path.parent / f"{tmp_path.name}-explained"
    run_stage("explain_reward", page, "", **{"reward.dir": str(tmp_path), "text": "the cue is 2"})
    summary = json.loads((page / "summary.json").read_text())
    assert summary["messages"] == len(TEXTS) - 1
    assert summary["steps"] == sum(loaded.trained.step_counts.values()) > 0  # type: ignore[attr-defined]
    assert summary["rewards"][0]["paying_messages"] == np.count_nonzero(paid[:-1])
    newest = loaded.trained.step
    # Whoever plays, it is rated as at that checkpoint; before the first update there was no reward yet, and the newest one counts.
    for checkpoint, rated_at in ((str(first), first), ("latest", newest), ("0", newest)):
        asked = evaluation_setup.of_folder(tmp_path, checkpoint)
        for policy in ("agent", "random"):
            again = evaluation_setup.open_setup(dataclasses.replace(asked, policy=policy))
            assert again.reward is not None
            assert (again.reward.section.step, again.live_rater() is None) == (rated_at, False)
