from __future__ import annotations

from motif_jax.runtime.learner import Averages


def test_the_log_has_means_and_the_extremes_of_extremes() -> None:
    averages = Averages()
    averages.add({"loss/policy": 1.0, "lag/max": 7.0, "policy/ratio_min": 0.5, "policy/ratio_max": 2.0})
    averages.add({})
    averages.add({"loss/policy": 2.0, "lag/max": 3.0, "policy/ratio_min": 0.9, "policy/ratio_max": 1.5})
    expected = {"loss/policy": 1.5, "lag/max": 7.0, "policy/ratio_min": 0.5, "policy/ratio_max": 2.0}
    assert averages.read() == expected
    assert averages.read() == {}
    averages.add({"lag/max": 1.0})
    assert averages.read() == {"lag/max": 1.0}
