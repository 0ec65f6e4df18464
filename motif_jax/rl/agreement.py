"""What the hosts of a run agree on with every update."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.parallel import AXIS, DataParallel


class Agreement:
    """Sums numbers of the hosts on the learner's devices, right behind an update.

    The sum is launched before the new policy acts: a split model has reductions in acting, too, and two threads' reductions may
    reach the devices in different orders. No call blocks but `result`.
    """

    def __init__(self, parallel: DataParallel) -> None:
        self._parallel = parallel
        self._alone = parallel.global_device_count == parallel.device_count
        self._sum = parallel.wrap(lambda _, said: jax.lax.psum(jnp.sum(said, axis=0), AXIS))
        self._nothing = parallel.replicate(np.zeros((), np.int32))
        self._result: list[int] | jax.Array | None = None

    def say(self, numbers: Sequence[int]) -> None:
        """Adds this host's numbers; every host calls it after starting the same update."""
        if self._alone:
            self._result = list(numbers)
            return
        said = np.zeros((self._parallel.device_count, len(numbers)), np.int32)
        said[0] = numbers
        self._result = self._sum(self._nothing, self._parallel.put_batch(said, 0))

    def result(self) -> list[int] | None:
        """The newest sums, None where they were returned before; waits for the update before them."""
        result, self._result = self._result, None
        return result if result is None or isinstance(result, list) else np.asarray(result).tolist()
