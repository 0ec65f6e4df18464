"""Seeds that are derived from one seed and a path of names and numbers."""

from __future__ import annotations

from motif_jax.core import seeds


def test_a_derived_seed_is_the_same_in_every_version() -> None:
    assert seeds.derive(777, "env", 3) == 5787547274941599065


def test_derived_seeds_differ_and_fit_63_bits() -> None:
    derived = {seeds.derive(1, "env", i, j) for i in range(50) for j in range(50)}

    assert len(derived) == 2500
    assert all(0 <= seed < 2**63 for seed in derived)


def test_paths_that_look_alike_have_seeds_of_their_own() -> None:
    paths: list[tuple[str | int, ...]] = [("a", 1), ("a", "1"), ("a1",)]

    assert len({seeds.derive(1, *path) for path in paths}) == 3


def test_a_generator_repeats_its_draws() -> None:
    assert seeds.rng(1, "a").integers(1000) == seeds.rng(1, "a").integers(1000)
