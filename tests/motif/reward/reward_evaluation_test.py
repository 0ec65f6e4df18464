from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.motif.pairs.targets import PairTargets
from motif_jax.motif.reward import reward_data
from motif_jax.motif.reward import reward_evaluation as evaluation
from motif_jax.motif.reward.reward_data import BatchPlan, RewardData
from tests.recorded_outputs import assert_matches_packed_recording

IDS = "0121 3310 2430 1112 0440 1022 2301 5125 5565 6301"
SURE = np.array([0.9, 0.2, 0.5, 0.3, 0.5, 0.8, 0.1, 0.7, 0.4, 0.25], np.float32)
WEIGHTS = np.array([1, 0.5, 1, 0.25, 0, 1, 0.5, 1, 0.75, 0], np.float32)


def data_of(**changes: Any) -> RewardData:
    """Ten pairs of two steps, with seven messages."""
    labels, wanted = np.array([0, 1, 2, 1, 2, 0, 1, 0, 1, 1], np.int8), np.stack([SURE, 1 - SURE], axis=1)
    status = np.arange(40).reshape(10, 2, 2, 1)
    given = {
        "dataset": SimpleNamespace(num_pairs=10, length=2, data={"blstats": status}),
        "messages": np.eye(7, 256, -1, np.uint8),
        "ids": np.array([*map(int, IDS.replace(" ", ""))], np.int32).reshape(10, 2, 2),
        "targets": PairTargets(labels, wanted * 0.8 + 0.1, wanted, WEIGHTS),
        "score": np.array([0, 1, 1, 0, 2, 0, 1, 1, 2, 0], np.int8),
    }
    parts = {"train": np.array([0, 2, 3, 4, 5]), "validation": np.array([1, 6, 7, 8, 9])}
    return RewardData(**{"max_length": 1, "fields": ("blstats",), "digests": {}, **given, **parts, **changes})


def test_statistics_and_metrics_of_a_few_pairs(record: bool) -> None:
    data, draws = data_of(), np.random.default_rng(0)
    assert data.counts.tolist() == [5, 6, 5, 1, 3, 0, 0]
    assert [part.tolist() for part in data.unseen()] == [[0, 0, 0, 1, 0], [0, 0, 1, 1, 1]]
    rewards, of_messages, of_steps = (
        draws.normal(size=s).astype("f4") for s in ((10, 2), (2, 7), (2, 10, 2, 2))
    )
    few = data_of(validation=np.array([4]), score=None)
    found = {str(part.score): evaluation.evaluate_pairs(rewards, part, 2) for part in (data, few)}
    for running in (False, True):
        for values in (of_messages, of_steps):
            given = values, data, values is of_messages, running, 2
            found[f"{values.shape} {running}"] = evaluation.reward_statistics(*given)
    mean = np.average(of_messages.mean(axis=0), weights=data.counts)
    assert found["(2, 7) False"]["mean"] == pytest.approx(mean)
    assert_matches_packed_recording(
        "reward_evaluation", {name: json.dumps(each, indent=1) for name, each in found.items()}, record
    )


def test_batches_of_pairs(record: bool) -> None:
    found = {}
    for devices, members, bootstrap in ((1, 1, False), (2, 2, True), (1, 2, False)):
        ensemble = SimpleNamespace(members=members, bootstrap=bootstrap)
        config: Any = SimpleNamespace(batch_size=2, chunk_steps=2, epochs=2, seed=3, ensemble=ensemble)
        plan = BatchPlan(data_of(), config, devices)
        batches = [plan.batches(*of) for of in ((0, 2), (2, 1), (3, 2), (1, 2))]
        sizes = plan.steps_per_epoch, plan.chunk_steps, plan.bucket, reward_data.axes(batches[0])
        found[f"{devices} {members}"] = str(
            jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), (sizes, batches))
        )
    assert_matches_packed_recording("batches_of_pairs", found, record)


def test_calibration_of_a_known_case():
    # Confidence 0.75 twice (right once), 0.95 once (right), a tie that does not count.
    sure = np.log(np.array([3.0, 3.0, 19.0, 5.0]))
    rewards = np.stack([sure, np.zeros(4)], axis=1)
    found = evaluation.calibration(rewards, np.array([0, 1, 0, 2]))
    assert found["error"] == pytest.approx((2 * abs(0.5 - 0.75) + abs(1 - 0.95)) / 3)
    assert [row["pairs"] for row in found["bins"]] == [2, 1]
    assert np.isnan(evaluation.calibration(rewards[:0], np.zeros(0, int))["error"])


def test_cross_entropy_is_stable():
    rewards = np.array([[1000.0, 0.0], [0.0, 1000.0], [1.0, 1.0]], np.float32)
    targets = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(evaluation.cross_entropy(rewards, targets), [0, 1000, np.log(2)], rtol=1e-6)
