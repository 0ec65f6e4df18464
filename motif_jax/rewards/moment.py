"""Where a reward that is learned online stands before a batch."""

from __future__ import annotations

from typing import Any, NamedTuple


class Moment(NamedTuple):
    """The reward before a batch; whatever it holds is never changed afterwards.

    Attributes:
      number: of the batch.
      length: of the label log.
      labels: so many are in it.
      step: environment steps of the run.
      version: of the reward.
      changed: number of the first batch with this version.
      own: what the kind adds.
    """

    number: int = 0
    length: int = 0
    labels: int = 0
    step: int = 0
    version: int = 0
    changed: int = 0
    own: Any = None
