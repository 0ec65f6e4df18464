"""What a command prints when nobody reads it any more, as when `tee` has ended of the same
Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import REPOSITORY

STOPPED = """
import sys, time
from motif_jax.core import interruption
from motif_jax.core.progress import Progress

interruption.outlive_readers()
with interruption.Interruption() as stop, Progress(2, "steps", "train") as progress:
    print("started", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    progress.log("saved")
    print("the end" * 10_000)
open(sys.argv[1], "w").close()
sys.exit(interruption.EXIT_CODE)
"""


def start(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, text=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_saves_when_the_reader_has_ended(tmp_path: Path, number: signal.Signals) -> None:
    program = start(STOPPED, tmp_path / "saved", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert program.stdout.readline() == "started\n"
    program.stdout.close()

    program.send_signal(number)

    assert program.wait(240) == 75
    assert (tmp_path / "saved").exists()


def test_a_reader_reads_all_in_order() -> None:
    code = (
        "import sys; print('one'); from motif_jax.core import interruption as streams;"
        "streams.outlive_readers(); print('twö'); print('three', file=sys.stderr)"
    )
    program = start(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")

    output, errors = program.communicate(timeout=240)

    assert (output, errors) == ("one\ntwö\n", "three\n")


def test_a_full_disk_is_still_an_error() -> None:
    code = (
        "from motif_jax.core import interruption as streams;"
        "streams.outlive_readers(); print('line', flush=True)"
    )
    with open("/dev/full", "w") as full:
        program = start(code, stdout=full, stderr=subprocess.PIPE)
        _, errors = program.communicate(timeout=240)

    assert program.returncode != 0
    assert "No space left on device" in errors
