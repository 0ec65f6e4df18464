from __future__ import annotations

import numpy as np
import pytest

from motif_jax.reports.smoothing import learning_curve, smooth
from motif_jax.support.metric_files import Curve


def test_curves_of_few_episodes_are_connected():
    generator = np.random.default_rng(0)
    # Episodes end in bunches, each seed's at other steps.
    seeds = [
        Curve(np.sort(generator.choice(range(0, 1000, 90), 14) + 11.0 * seed), generator.normal(size=14))
        for seed in range(3)
    ]
    line = learning_curve("m", seeds)
    assert len(line.x) > 3
    assert np.isfinite(line.y).all()
    assert np.isfinite(line.low).all()
    few = learning_curve("m", seeds, least=10)
    assert len(few.x) <= 7, "stretches of two values, a fifth of few"
    apart = [Curve(np.arange(3.0), np.ones(3)), Curve(np.arange(10.0, 13), np.ones(3))]
    assert len(learning_curve("m", apart).x) == 0, "nothing is known of both"
    assert len(learning_curve("m", [Curve(np.arange(3.0), np.full(3, np.nan))]).x) == 0
    assert len(learning_curve("m", [Curve(np.ones(4), np.ones(4))] * 2).x) == 1


def test_means_of_stretches_keep_all_values():
    generator = np.random.default_rng(1)
    curve = Curve(np.sort(generator.integers(0, 10_000, 400)).astype(float), generator.gamma(2, 3, 400))
    smoothed = smooth(curve)
    assert smoothed.count.sum() == 400
    assert smoothed.count.min() >= 10
    assert (np.diff(smoothed.x) > 0).all()
    np.testing.assert_allclose((smoothed.mean * smoothed.count).sum(), curve.y.sum())
    first = curve.y[: smoothed.count[0]]
    assert smoothed.mean[0] == pytest.approx(first.mean())
    said = smoothed.caption("episodes")
    assert f"{len(smoothed.x)} stretches of steps" in said
    assert f"{smoothed.count.min()} to {smoothed.count.max()} episodes in each" in said
    assert "n = 400" in said
    assert len(smooth(Curve(np.arange(3.0), np.full(3, np.nan))).x) == 0


def test_bands_keep_to_what_is_possible_and_have_a_width():
    generator = np.random.default_rng(2)
    steps = np.arange(200.0)
    gold = np.where(generator.random(200) < 0.1, 25.0, 0.0)
    depth = 1 + (generator.random(200) < 0.15) * 3.0
    for values, least in ((gold, 0.0), (depth, 1.0)):
        smoothed = smooth(Curve(steps, values))
        assert smoothed.low.min() >= least
        assert smoothed.high.max() <= values.max()
        mixed = [len(np.unique(part)) > 1 for part in np.split(values, np.cumsum(smoothed.count)[:-1])]
        assert (smoothed.high > smoothed.low)[mixed].all()
    many = smooth(Curve(np.arange(6000.0), generator.gamma(1, 5, 6000)), stretches=6)
    assert many.high - many.low == pytest.approx(2 * 1.96 * 5 / np.sqrt(1000), rel=0.25)
    success = smooth(Curve(steps, np.zeros(200)), rate=True)
    assert (success.low == 0).all()
    assert (success.high > 0.1).all(), "no success in ten games is not certain failure"
