"""Statistics of rewards against a plain float64 pass and the published running ones."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.motif.reward.normalisation import (
    QUANTILE_LEVELS,
    Normalisation,
    RunningMoments,
    quantiles,
    two_decimals,
    weighted_moments,
)


def test_weighted_moments_equal_a_pass_over_all_values():
    rng = np.random.default_rng(0)
    # As a fresh network's rewards are: a small spread round a far larger mean.
    values = (3.0 + 5e-4 * rng.standard_normal(400)).astype(np.float32)
    counts = rng.geometric(0.01, 400)
    repeated = np.repeat(values.astype(np.float64), counts)
    mean, variance = weighted_moments(values, counts)
    np.testing.assert_allclose(mean, repeated.mean(), rtol=1e-12)
    np.testing.assert_allclose(variance, repeated.var(), rtol=1e-9)


def test_running_moments_equal_golden(golden):
    g = golden("reward_norm.npz")
    moments = RunningMoments()
    start = 0
    for size, expected in zip(
        g["rms_batch_sizes"], g["rms_mean_var_count_after_each"], strict=True
    ):
        moments.update(g["rms_input"][start : start + size])
        start += size
        np.testing.assert_allclose(
            (moments.mean, moments.variance, moments.count), expected, rtol=1e-5
        )
    tiny = RunningMoments()
    tiny.update(g["rms_tiny_input"])
    np.testing.assert_allclose(
        (tiny.mean, tiny.variance, tiny.count), g["rms_tiny_mean_var_count"], rtol=1e-6
    )


def test_a_single_number_has_no_variance():
    moments = RunningMoments()
    moments.update(np.array([3.0]))
    total = 1 + 1e-4
    expected = 3 / total, (1e-4 + 9 * 1e-4 / total) / total
    assert (moments.mean, moments.variance) == pytest.approx(expected)


def test_earlier_numbers_may_count_less():
    moments = RunningMoments(2.0, 4.0, 8.0)
    moments.update(np.array([4.0, 6.0]), decay=0.5)
    # Four old numbers with mean 2 and variance 4, two new ones with mean 5 and variance 2.
    assert (moments.mean, moments.count) == (3.0, 6.0)
    assert moments.variance == pytest.approx((4 * 4 + 2 * 2 + 3**2 * 4 * 2 / 6) / 6)


def test_quantiles_equal_golden(golden):
    g = golden("reward_norm.npz")
    np.testing.assert_allclose(QUANTILE_LEVELS, g["quantile_levels"], rtol=1e-12)
    # The golden quantiles are of the normalised rewards of distinct messages.
    normalise = Normalisation(float(g["final_mean"]), float(g["final_var"])).normalise
    values = quantiles(normalise(g["unique_message_rewards"]))
    np.testing.assert_allclose(values, g["quantile_values_exact"], rtol=1e-5, atol=1e-6)
    assert two_decimals(values) == g["quantile_values_csv_2dp"].tolist()


def test_intrinsic_rewards_equal_golden(golden):
    g = golden("reward_norm.npz")
    mean = float(g["final_mean"])
    variance = float(g["final_var"])
    cases = {
        "final_llm_after_norm_threshold": Normalisation(mean, variance, float(g["final_thr"])),
        "final_B_llm": Normalisation(mean, variance, float(g["final_B_thr"])),
        "final_C_llm_no_norm": Normalisation(mean, variance, float(g["final_thr"]), False),
    }
    for name, normalisation in cases.items():
        np.testing.assert_allclose(
            normalisation(g["final_raw"]), g[name], rtol=1e-5, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("numbers", [(np.nan, 1.0), (0.0, np.nan), (0.0, -1.0), (0.0, 1.0, np.inf)])
def test_numbers_that_would_quietly_pay_nothing_are_refused(numbers):
    with pytest.raises(ValueError, match="finite"):
        Normalisation(*map(float, numbers))


def test_threshold_is_strict_and_optional():
    values = np.array([0.0, 0.5, 0.50001], np.float32)
    np.testing.assert_array_equal(Normalisation(threshold=0.5)(values), [0, 0, np.float32(0.50001)])
    assert not np.signbit(Normalisation(threshold=0.5)(values - 1)).any()  # no -0.0
    np.testing.assert_array_equal(Normalisation(threshold=None)(values - 1), values - 1)
    np.testing.assert_array_equal(Normalisation(2.0, 0.0).normalise(values), values - 2)
