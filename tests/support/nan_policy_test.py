"""The policy for steps that are not finite, and the batch that is kept of one."""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from motif_jax.support import nan_policy


def test_a_batch_is_written_whole(tmp_path):
    arrays = {"rows/blstats": np.arange(6).reshape(2, 3), "loss": np.float32(np.nan)}
    path = nan_policy.write_batch(tmp_path, 17, arrays)
    assert path == tmp_path / "nonfinite" / "step-17.npz"
    with np.load(path) as read:
        assert sorted(read) == sorted(arrays)
        np.testing.assert_array_equal(read["rows/blstats"], arrays["rows/blstats"])
        assert np.isnan(read["loss"])


def test_policies():
    config = ConfigDict({"nonfinite": {"policy": "stop", "most_skips": 10}})
    assert nan_policy.most_skips(config) == 0
    config.nonfinite.policy = "skip"
    assert nan_policy.most_skips(config) == config.nonfinite.most_skips > 0
