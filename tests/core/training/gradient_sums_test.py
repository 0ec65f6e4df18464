"""Mean and range over parts, by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.training import gradient_sums


def test_parts_add_up_over_micro_batches_and_devices() -> None:
    values = jnp.array([[1.0, 9.0, -2.0], [5.0, -7.0, 0.0]])
    counts = jnp.array([[True, False, True], [True, False, False]])
    rows = [
        {"q": gradient_sums.spread(*row), "n": jnp.float32(2)}
        for row in zip(values, counts, strict=True)
    ]
    joined = gradient_sums.added(
        gradient_sums.added(gradient_sums.nothing(rows[0]), rows[0]), rows[1]
    )
    assert (joined["n"], tuple(joined["q"])) == (4, (4, 3, -2, 5))
    shown = gradient_sums.named({"q": joined["q"], "none": gradient_sums.nothing(joined["q"])})
    np.testing.assert_allclose(
        [shown[f"q_{part}"] for part in ("mean", "min", "max")], [4 / 3, -2, 5], rtol=1e-6
    )
    assert [shown[f"none_{part}"] for part in ("mean", "min", "max")] == [0, 0, 0]

    def core(values: jax.Array, counts: jax.Array) -> gradient_sums.Spread:
        return gradient_sums.over_devices(gradient_sums.spread(values, counts), "d")

    for part, expected in zip(
        jax.vmap(core, axis_name="d")(values, counts), (4, 3, -2, 5), strict=True
    ):
        assert part.tolist() == [expected] * 2
