"""The log of an online run's labels over a kill and a resume."""

from __future__ import annotations

from pathlib import Path

from motif_jax.core.verdicts import NO, YES
from motif_jax.oni.label_log import LabelLog, read_log
from motif_jax.oni.label_queue import Label

KILL = Label(("You kill the newt!",), YES)
WALL = Label(("It's a wall.",), NO)
DOOR = Label(("The door opens.",), YES)


def test_labels_after_the_checkpoint_stay_until_a_run_takes_them(tmp_path: Path) -> None:
    """They have been paid for, and a start may end before its first batch: the server is away."""
    path = tmp_path / "labels.jsonl"
    with LabelLog(path) as log:
        log.add([KILL])
        length = log.length()
        log.add([WALL])

    for _ in range(2):
        with LabelLog(path) as log:
            later = log.rewind(length)
            assert later == [WALL]
            assert log.length() == length

    with LabelLog(path) as log:
        log.add([*log.rewind(length), DOOR])
        assert log.length() == path.stat().st_size
    assert list(read_log(path)) == [KILL, WALL, DOOR]
