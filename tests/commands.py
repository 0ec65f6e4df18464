"""Many starts of `motif_jax.launch`, in a copy each of one process that has imported it: what each of them takes longest with."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

# Reads a folder and arguments, a line each time, and answers with the exit code of a copy that ran them.
_COPIES = """
import json, os, sys
from motif_jax import launch

for line in sys.stdin:
    folder, arguments, said, errors = json.loads(line)
    copy = os.fork()
    if not copy:
        for path, number in ((os.devnull, 0), (said, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder)
        sys.argv = ["launch", *arguments]
        launch.main()
    print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)
"""


class Commands:
    """Command lines without the start of a process each."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def launch(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `python -m motif_jax.launch ARGUMENTS` in `folder`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        said, errors = self._folder / "said", self._folder / "errors"
        line = json.dumps([str(folder), arguments, str(said), str(errors)])
        print(line, file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, said.read_text(), errors.read_text())


@contextlib.contextmanager
def commands(repository: Path) -> Iterator[Commands]:
    """Command lines of the checkout at `repository`, until the block ends."""
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", _COPIES],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:  # which closes what it reads: its end
            yield Commands(process, Path(folder))
