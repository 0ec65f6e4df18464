"""A trace that was asked for and never begun is said."""

from __future__ import annotations

from motif_jax.core.profiling import Profiler


def test_a_profile_after_the_end_of_a_run_is_reported(tmp_path, capfd):
    profiler = Profiler(tmp_path, start=100)
    for number in range(5):
        profiler.step(number)
    profiler.close()
    printed = capfd.readouterr().err
    assert "config.profile.start=100" in printed
    assert "after 5 updates" in printed
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_profile_says_nothing(tmp_path, capfd):
    profiler = Profiler(tmp_path)
    profiler.step(0)
    profiler.close()
    assert not capfd.readouterr().err
