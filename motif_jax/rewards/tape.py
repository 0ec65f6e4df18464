"""A tape: the label log of another run, played again without an annotator."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.rewards.label_log import FILE, Label, Record, Training, read_log
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError


class Tape:
    """Gives what a run's log took up before each batch, in its order.

    Args:
      folder: of the run.

    Raises:
      UserError: it has no label log.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE
        if not self.path.exists():
            raise UserError(
                f"config.reward.tape={folder}: must be a run that learned its reward; it has no {FILE}"
            )
        self._records = read_log(self.path)
        self._next: Record | None = None
        self._ended = False

    def skip(self, number: int) -> None:
        """Leaves out what took effect before batch `number`."""
        self.due(number - 1)

    def due(self, number: int) -> list[Label | Training]:
        """What takes effect up to batch `number`, without what was given before."""
        found: list[Label | Training] = []
        while (record := self._peek()) is not None and record.number <= number:
            if isinstance(record, Label | Training):
                found.append(record)
            self._next = None
        return found

    def _peek(self) -> Record | None:
        if self._next is None and not self._ended:
            self._next = next(self._records, None)
            self._ended = self._next is None
        return self._next


def check_tape(config: ConfigDict, identity: Iterable[str]) -> None:
    """Requires that `config.reward.tape`, where it is given, names a run of the same config.

    Args:
      config: of a training.
      identity: what makes a run the run it is; see `run_folder.differences`.

    Raises:
      UserError: it is no such run, or another one; every key that differs is named.
    """
    tape = config.reward.get("tape")
    if not tape:
        return
    Tape(tape)
    there, here = run_folder.read_config(tape), run_folder.as_plain(config)
    for one in (there, here):
        one.get("reward", {}).pop("tape", None)
    if changed := run_folder.differences(there, here, identity):
        raise UserError(
            f"config.reward.tape={tape}: must be a run of the same config ({'; '.join(changed)}), whose labels come at the "
            "same updates"
        )
