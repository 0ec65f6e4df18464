"""Many starts of `motif_jax.launch`, in a copy each of one process that has imported it: what each
of them takes longest with.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import budget

# Reads a folder and arguments, a line each time, and answers with the exit code of a copy that ran
# them.
_COPIES = """
import importlib, json, os, sys
from motif_jax import launch

for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    folder, arguments, typed, said, errors = json.loads(line)
    copy = os.fork()
    if not copy:
        os.dup2(os.open(typed, os.O_RDONLY), 0)
        for path, number in ((said, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder)
        sys.argv = ["launch", *arguments]
        launch.main()
    _, status, used = os.wait4(copy, 0)
    print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)
"""


class Commands:
    """Command lines without the start of a process each."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.seconds = 0.0

    def launch(
        self, folder: Path, *arguments: str, typed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs `python -m motif_jax.launch ARGUMENTS` in `folder`; `typed` is its standard
        input.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source, output, errors = (self._folder / name for name in ("typed", "said", "errors"))
        source.write_text(typed)
        line = json.dumps([str(folder), arguments, str(source), str(output), str(errors)])
        print(line, file=self._process.stdin, flush=True)
        code, seconds = self._process.stdout.readline().split()
        self.seconds += float(seconds)
        budget.elsewhere += float(seconds)
        return subprocess.CompletedProcess(
            arguments, int(code), output.read_text(), errors.read_text()
        )


@contextlib.contextmanager
def commands(repository: Path, *imported: str, **environment: str) -> Iterator[Commands]:
    """Command lines of the checkout at `repository`, until the block ends; each finds the modules
    `imported` in memory.
    """
    environment = {**os.environ, "PYTHONPATH": str(repository), **environment}
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", _COPIES, *imported],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        shell = Commands(process, Path(folder))
        with process:  # which closes what it reads: its end
            yield shell
        budget.elsewhere -= shell.seconds  # from now on they are those of a child that has ended
