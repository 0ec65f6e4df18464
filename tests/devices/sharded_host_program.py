"""One host of two, started by sharding_test.py: `python -m tests.devices.sharded_host_program INDEX PORT FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import pytest


def main(index: str, port: str, folder: str) -> None:
    jax.config.update("jax_disable_most_optimizations", True)
    jax.distributed.initialize(f"localhost:{port}", 2, int(index))
    from motif_jax.support.checkpoints import Checkpoints
    from motif_jax.support.errors import UserError
    from tests.devices import sharding_test as fixed

    with pytest.raises(UserError, match="does not divide over 2 hosts"):
        fixed.devices((1, 1, 4), fixed.GPT2)
    _, losses, state, parallel = fixed.train(fixed.GPT2, (1, 2, 2), int(index), hosts=2)
    assert (parallel.device_count, parallel.global_device_count) == (1, 2)
    kernel = state.params["decoder"]["block_0"]["attention"]["query"]["kernel"]
    assert not kernel.is_fully_addressable
    with Checkpoints(Path(folder)) as checkpoints:
        checkpoints.save(20, {"state": state, "losses": {"each": losses}})
        checkpoints.wait()
    # It goes on from what was saved, split otherwise.
    with Checkpoints(Path(folder), read_only=True) as checkpoints:
        found = checkpoints.restore(20, {"state": fixed.first_state(fixed.GPT2)})["state"]
    again = fixed.devices((4, 1, 1), fixed.GPT2).replicate(found)
    assert jax.tree.all(jax.tree.map(lambda leaf: leaf.is_fully_replicated, again))


if __name__ == "__main__":
    main(*sys.argv[1:])
